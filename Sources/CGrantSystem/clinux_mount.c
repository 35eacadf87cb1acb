#include "clinux_mount.h"
#include "clinux_call.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// <linux/mount.h> and <linux/stat.h> of 6.8, for older headers that lack them.
#define MOUNT_ID 0x1000U
#define MOUNT_ID_UNIQUE 0x4000U
#ifdef SYS_statmount
#define STATMOUNT_CALL SYS_statmount
#else
#define STATMOUNT_CALL 457
#endif
// <sys/mount.h>, which conflicts with <linux/mount.h> on some systems.
#define UNMOUNT_DETACH 2
#define UNMOUNT_NOFOLLOW 8
// <linux/magic.h> of 5.10 has no name for it: fs/fuse/control.c.
#define FUSE_CONTROL_MAGIC 0x65735543

// stx_mnt_id follows stx_dev_minor in the kernel's struct. Older headers call it spare.
static uint64_t mount_field(const struct statx *x) {
    uint64_t value;
    memcpy(&value, (const char *)x + 0x90, sizeof value);
    return value;
}

int clinux_mount_number(int fd, uint64_t *number) {
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, MOUNT_ID_UNIQUE, &x) < 0) return -errno;
    if (!(x.stx_mask & MOUNT_ID_UNIQUE)) return -ENOSYS;
    *number = mount_field(&x);
    return 0;
}

int clinux_mount_is_there(uint64_t number) {
    // struct mnt_id_req in its first version, MNT_ID_REQ_SIZE_VER0.
    struct { uint32_t size, spare; uint64_t mount, parameter; } request = {24, 0, number, 0x2 /* STATMOUNT_MNT_BASIC */};
    // struct statmount without its strings.
    char answer[512] __attribute__((aligned(8)));
    if (syscall(STATMOUNT_CALL, &request, answer, sizeof answer, 0) == 0) return 1;
    return errno == ENOENT ? 0 : -errno;
}

int clinux_mount_filesystem_of(uint64_t number, struct clinux_mount_filesystem *out) {
    enum { BASIC = 0x1, TYPE = 0x20, SUBTYPE = 0x100, SOURCE = 0x200 };
    struct { uint32_t size, spare; uint64_t mount, parameter; } request = {24, 0, number, BASIC | TYPE | SUBTYPE | SOURCE};
    // struct statmount of Linux 6.14. `mask` omits fields that the kernel does not know. Strings
    // follow it, each at its offset in `words`.
    struct {
        uint32_t size, options; uint64_t mask; uint32_t major, minor; uint64_t magic; uint32_t flags, type; uint64_t others[10];
        uint32_t subtype, source; uint64_t spare[48]; char words[8192];
    } answer;
    _Static_assert(offsetof(__typeof__(answer), subtype) == 120 && offsetof(__typeof__(answer), words) == 512, "struct statmount");
    if (syscall(STATMOUNT_CALL, &request, &answer, sizeof answer, 0) == -1) return -errno;
    if (!(answer.mask & BASIC) || !(answer.mask & TYPE)) return -ENOSYS;
    const char *type = answer.words + answer.type;
    const char *subtype = answer.mask & SUBTYPE ? answer.words + answer.subtype : "";
    const char *source = answer.mask & SOURCE ? answer.words + answer.source : "";
    out->major = answer.major;
    out->minor = answer.minor;
    int count = snprintf(out->type, sizeof out->type, "%s%s%s", type, *subtype ? "." : "", subtype);
    if (count < 0 || (size_t)count >= sizeof out->type) return -ENAMETOOLONG;
    count = snprintf(out->source, sizeof out->source, "%s", source);
    return count < 0 || (size_t)count >= sizeof out->source ? -ENAMETOOLONG : 0;
}

int clinux_mount_place_of(int dirfd, const char *path, struct clinux_mount_place *out) {
    struct statx x;
    int flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | (*path == 0 ? AT_EMPTY_PATH : 0);
    // An empty mask: a FUSE filesystem of another user refuses every other request.
    if (statx(dirfd, path, flags, 0, &x) == -1) return -errno;
    out->major = x.stx_dev_major;
    out->minor = x.stx_dev_minor;
    out->id = x.stx_mask & MOUNT_ID ? mount_field(&x) : 0;
    // One field has either of the two.
    out->number = statx(dirfd, path, flags, MOUNT_ID_UNIQUE, &x) == 0 && x.stx_mask & MOUNT_ID_UNIQUE ? mount_field(&x) : 0;
    return 0;
}

int clinux_open_directory_without_links(const char *path) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)RETRY(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}

static int configure(int fs, const char *key, const char *value) {
    unsigned command = value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
    return syscall(SYS_fsconfig, fs, command, key, value, 0) == -1 ? -errno : 0;
}

static int set_word(int fs, const char *word, unsigned *attributes) {
    static const struct { const char *word; unsigned set, clear; } flags[] = {
        {"suid", 0, MOUNT_ATTR_NOSUID},     {"nosuid", MOUNT_ATTR_NOSUID, 0},   {"dev", 0, MOUNT_ATTR_NODEV},
        {"nodev", MOUNT_ATTR_NODEV, 0},     {"noexec", MOUNT_ATTR_NOEXEC, 0},   {"noatime", MOUNT_ATTR_NOATIME, 0},
        {"nodiratime", MOUNT_ATTR_NODIRATIME, 0}, {"ro", MOUNT_ATTR_RDONLY, 0},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(word, flags[i].word)) continue;
        *attributes = (*attributes | flags[i].set) & ~flags[i].clear;
        // For the filesystem as well, as mount(2) does.
        return strcmp(word, "ro") ? 0 : configure(fs, "ro", NULL);
    }
    return configure(fs, word, NULL);
}

static int configure_fuse(int fs, int device, const char *subtype, const char *source, const char *words, unsigned *attributes) {
    char number[16], user[16], group[16];
    snprintf(number, sizeof number, "%d", device);
    snprintf(user, sizeof user, "%u", getuid());
    snprintf(group, sizeof group, "%u", getgid());
    const char *settings[][2] = {{"source", source},  {"subtype", subtype}, {"fd", number},
                                 {"rootmode", "40000"}, {"user_id", user},    {"group_id", group}};
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof settings / sizeof *settings; i++) result = configure(fs, settings[i][0], settings[i][1]);
    char *list = strdup(words), *rest = NULL;
    if (!list) return -ENOMEM;
    for (char *word = strtok_r(list, ",", &rest); result == 0 && word; word = strtok_r(NULL, ",", &rest)) result = set_word(fs, word, attributes);
    free(list);
    if (result == 0 && syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == -1) result = -errno;
    return result;
}

int clinux_fuse_mount(int directory, const char *subtype, const char *source, const char *words, int *device, int *mount) {
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse == -1) return -errno;
    int root = -1, result = 0;
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    int fs = (int)syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC);
    if (fs == -1) result = -errno;
    if (result == 0) result = configure_fuse(fs, fuse, subtype, source, words, &attributes);
    if (result == 0 && (root = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes)) == -1) result = -errno;
    if (result == 0 && syscall(SYS_move_mount, root, "", directory, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == -1)
        result = -errno;
    if (fs != -1) close(fs);
    if (result < 0) {
        if (root != -1) close(root);
        close(fuse);
        return result;
    }
    *device = fuse;
    *mount = root;
    return 0;
}

int clinux_unmount_descriptor(int fd) {
    char link[40];
    magic_path(link, fd);
    return (int)RETRY(syscall(SYS_umount2, link, UNMOUNT_DETACH));
}

int clinux_unmount_in(int parent, const char *name) {
    char link[40], path[300];
    if (strlen(name) > 255 || strchr(name, '/')) return -EINVAL;
    magic_path(link, parent);
    snprintf(path, sizeof path, "%s/%s", link, name);
    return (int)RETRY(syscall(SYS_umount2, path, UNMOUNT_NOFOLLOW));
}

// Without a flag for access times the kernel would not change those flags.
int clinux_remount(int fd, bool read_only, bool set_id, bool devices, bool no_execute, bool no_access_time, bool no_directory_access_time) {
    unsigned long flags = MS_REMOUNT | (read_only ? MS_RDONLY : 0) | (set_id ? 0 : MS_NOSUID) | (devices ? 0 : MS_NODEV) |
                          (no_execute ? MS_NOEXEC : 0) | (no_access_time ? MS_NOATIME : MS_RELATIME) |
                          (no_directory_access_time ? MS_NODIRATIME : 0);
    char link[40];
    magic_path(link, fd);
    return (int)RETRY(syscall(SYS_mount, "none", link, NULL, flags, NULL));
}

int clinux_fuse_node(const char *path, uint64_t *node, uint32_t *generation) {
    // AT_HANDLE_FID of Linux 6.5: a handle that is compared and never opened. Older kernels had
    // such handles without it.
    struct { struct file_handle handle; uint32_t words[32]; } space;
    int result = -1;
    for (int attempt = 0; attempt < 2 && result != 0; attempt++) {
        int mount;
        space.handle.handle_bytes = sizeof space.words;
        result = name_to_handle_at(AT_FDCWD, path, &space.handle, &mount, AT_SYMLINK_FOLLOW | (attempt == 0 ? 0x200 : 0));
        if (result != 0 && (attempt == 1 || errno != EINVAL)) return -errno;
    }
    uint32_t words[3];
    // FILEID_INO64_GEN (fs/fuse/inode.c, fuse_encode_fh): two words of the node's id, and its
    // generation.
    if (space.handle.handle_type != 0x81 || space.handle.handle_bytes != sizeof words) return -EOPNOTSUPP;
    memcpy(words, space.handle.f_handle, sizeof words);
    *node = (uint64_t)words[0] << 32 | words[1];
    *generation = words[2];
    return 0;
}

static int64_t nanoseconds(struct timespec time) { return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec; }

int clinux_fuse_control(unsigned minor, uint64_t *inode, int64_t *changed, uint64_t *instance) {
    int root = open("/sys/fs/fuse/connections", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root == -1) return -ENOSYS;
    struct statfs kind;
    struct stat st;
    struct clinux_mount_place place;
    int result = 0;
    if (fstatfs(root, &kind) == -1 || (uint32_t)kind.f_type != FUSE_CONTROL_MAGIC || clinux_mount_place_of(root, "", &place) < 0) result = -ENOSYS;
    if (result == 0) {
        *instance = place.number ? place.number : place.id << 32 | place.minor;
        char name[16];
        snprintf(name, sizeof name, "%u", minor);
        if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) == -1) result = -errno;
    }
    if (result == 0) {
        *inode = st.st_ino;
        *changed = nanoseconds(st.st_ctim);
    }
    close(root);
    return result;
}

static int fuse_control(void) {
    struct statfs kind;
    int root = open("/sys/fs/fuse/connections", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root != -1 && fstatfs(root, &kind) == 0 && (uint32_t)kind.f_type == FUSE_CONTROL_MAGIC) return root;
    if (root != -1) close(root);
    int fs = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC);
    if (fs == -1) return -errno;
    int result = 0;
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == -1) result = -errno;
    if (result == 0 && (root = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)) == -1)
        result = -errno;
    close(fs);
    return result < 0 ? result : root;
}

int clinux_fuse_control_abort(unsigned minor) {
    int root = fuse_control();
    if (root < 0) return root;
    char name[24];
    snprintf(name, sizeof name, "%u/abort", minor);
    int file = (int)RETRY(openat(root, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    close(root);
    return file;
}
