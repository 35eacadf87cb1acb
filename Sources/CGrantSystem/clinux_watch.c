#include "CGrantSystem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fanotify.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

// Linux 6.5: a handle for comparing only, which more filesystems have than handles that can be
// opened.
#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x1000
#endif

// Moves a group to a high number, so that it is closed late.
//
// A process that ends closes its descriptors from the lowest on, and the kernel takes tens of
// milliseconds to close these. Programs that use the mount would wait that long to notice that the
// daemon is gone.
static int last_to_close(int group) {
    int moved = fcntl(group, F_DUPFD_CLOEXEC, 512);
    if (moved == -1) return group;
    close(group);
    return moved;
}

int clinux_fanotify_open(bool data) {
    unsigned report = FAN_REPORT_FID | (data ? FAN_REPORT_DIR_FID : FAN_REPORT_DFID_NAME);
    unsigned flags = FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | report;
    // Also reports the file of the entry, if names are reported: Linux 5.17.
    long group = syscall(SYS_fanotify_init, data ? flags : flags | FAN_REPORT_TARGET_FID, O_RDONLY);
    if (group < 0 && errno == EINVAL && !data) group = syscall(SYS_fanotify_init, flags, O_RDONLY);
    return group < 0 ? -errno : last_to_close((int)group);
}

static void descriptor_path(char out[32], int fd) { snprintf(out, 32, "/proc/self/fd/%d", fd); }

static int mark(int group, unsigned flags, uint64_t mask, int fd) {
    char path[32];
    descriptor_path(path, fd);
    return syscall(SYS_fanotify_mark, group, flags, mask, AT_FDCWD, path) == -1 ? -errno : 0;
}

int clinux_fanotify_watch(int group, int fd) {
    uint64_t names = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO;
    return mark(group, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, names | FAN_ATTRIB | FAN_CLOSE_WRITE | FAN_ONDIR, fd);
}

int clinux_fanotify_watch_data(int group, int fd, bool on) {
    uint64_t writes = FAN_MODIFY | FAN_EVENT_ON_CHILD;
    if (!on) return mark(group, FAN_MARK_REMOVE, writes, fd);
    // Evictable (5.19), or each watched directory would stay in memory.
    int result = mark(group, FAN_MARK_ADD | FAN_MARK_EVICTABLE, writes, fd);
    return result == -EINVAL ? mark(group, FAN_MARK_ADD, writes, fd) : result;
}

static uint64_t handle_key(int type, const unsigned char *bytes, unsigned length) {
    // FNV-1a. Two directories with one key cost a needless check, and nothing else.
    uint64_t key = 0xcbf29ce484222325u ^ (uint32_t)type;
    for (unsigned i = 0; i < length; i++) key = (key ^ bytes[i]) * 0x100000001b3u;
    return key;
}

int clinux_directory_key(int fd, uint64_t *key) {
    union { struct file_handle h; char space[sizeof(struct file_handle) + 128]; } u;
    int mount_id;
    u.h.handle_bytes = 128;
    int result = name_to_handle_at(fd, "", &u.h, &mount_id, AT_EMPTY_PATH | AT_HANDLE_FID);
    if (result == -1 && errno == EINVAL) {
        u.h.handle_bytes = 128;
        result = name_to_handle_at(fd, "", &u.h, &mount_id, AT_EMPTY_PATH);
    }
    if (result == -1) return -errno;
    *key = handle_key(u.h.handle_type, u.h.f_handle, u.h.handle_bytes);
    return 0;
}

// struct fanotify_event_info_fid: header, fsid, then a struct file_handle, then the name in records
// that have one.
static void take_handle(struct clinux_handle *out, const struct file_handle *handle, const unsigned char *bytes) {
    if (handle->handle_bytes > sizeof out->bytes) return;
    out->type = handle->handle_type;
    out->length = handle->handle_bytes;
    memcpy(out->bytes, bytes, handle->handle_bytes);
}

static void take_record(const struct fanotify_event_info_fid *info, struct clinux_change *out) {
    struct file_handle handle;
    const unsigned char *at = (const unsigned char *)info->handle;
    memcpy(&handle, at, sizeof handle);
    const unsigned char *bytes = at + sizeof handle;
    memcpy(&out->filesystem, &info->fsid, sizeof out->filesystem);
    switch (info->hdr.info_type) {
    case FAN_EVENT_INFO_TYPE_DFID_NAME:
    case FAN_EVENT_INFO_TYPE_DFID:
        out->has_directory = true;
        out->directory = handle_key(handle.handle_type, bytes, handle.handle_bytes);
        take_handle(&out->directory_handle, &handle, bytes);
        if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
            const char *name = (const char *)bytes + handle.handle_bytes;
            out->name = strcmp(name, ".") == 0 ? NULL : name;
        }
        break;
    case FAN_EVENT_INFO_TYPE_FID:
        take_handle(&out->file, &handle, bytes);
        out->file_key = handle_key(handle.handle_type, bytes, handle.handle_bytes);
        break;
    }
}

size_t clinux_fanotify_next(const void *buffer, size_t length, struct clinux_change *out) {
    const struct fanotify_event_metadata *event = buffer;
    if (length < sizeof *event || event->event_len < sizeof *event || event->event_len > length) return 0;
    memset(out, 0, offsetof(struct clinux_change, directory_handle));
    out->directory_handle.length = out->file.length = 0;
    out->process = event->pid;
    if (event->mask & FAN_Q_OVERFLOW) out->kinds |= clinux_change_overflow;
    if (event->mask & (FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO)) out->kinds |= clinux_change_names;
    if (event->mask & FAN_ONDIR && event->mask & (FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO)) out->kinds |= clinux_change_directory;
    if (event->mask & FAN_MOVED_FROM) out->kinds |= clinux_change_moved;
    if (event->mask & (FAN_MODIFY | FAN_CLOSE_WRITE)) out->kinds |= clinux_change_data;
    if (event->mask & FAN_ATTRIB) out->kinds |= clinux_change_attributes;
    const char *at = (const char *)buffer + event->metadata_len, *end = (const char *)buffer + event->event_len;
    while (at + sizeof(struct fanotify_event_info_header) <= end) {
        const struct fanotify_event_info_header *header = (const void *)at;
        if (header->len < sizeof *header || at + header->len > end) break;
        if (header->len >= sizeof(struct fanotify_event_info_fid) + sizeof(struct file_handle)) take_record((const void *)at, out);
        at += header->len;
    }
    return event->event_len;
}

int clinux_inotify_open(void) {
    int instance = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return instance == -1 ? -errno : last_to_close(instance);
}

int clinux_inotify_watch(int group, int fd) {
    char path[32];
    descriptor_path(path, fd);
    int key = inotify_add_watch(group, path,
                                IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR);
    return key == -1 ? -errno : key;
}

int clinux_inotify_unwatch(int group, int key) { return inotify_rm_watch(group, key) == -1 ? -errno : 0; }

size_t clinux_inotify_next(const void *buffer, size_t length, struct clinux_change *out) {
    const struct inotify_event *event = buffer;
    if (length < sizeof *event || length < sizeof *event + event->len) return 0;
    memset(out, 0, offsetof(struct clinux_change, directory_handle));
    out->directory_handle.length = out->file.length = 0;
    if (event->mask & IN_Q_OVERFLOW) out->kinds |= clinux_change_overflow;
    if (event->mask & IN_IGNORED) out->kinds |= clinux_change_ended;
    if (event->mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)) out->kinds |= clinux_change_names;
    if (event->mask & (IN_MOVED_FROM | IN_MOVE_SELF)) out->kinds |= clinux_change_moved;
    if (event->mask & IN_MODIFY) out->kinds |= clinux_change_data;
    if (event->mask & IN_ATTRIB) out->kinds |= clinux_change_attributes;
    out->has_directory = event->wd >= 0;
    out->directory = (uint64_t)(uint32_t)event->wd;
    out->name = event->len > 0 ? event->name : NULL;
    return sizeof *event + event->len;
}

ssize_t clinux_read(int fd, void *buffer, size_t size) {
    ssize_t count;
    do count = read(fd, buffer, size);
    while (count == -1 && errno == EINTR);
    return count == -1 ? -errno : count;
}
