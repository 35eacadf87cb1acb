// The identity of an inode, and the flags that it carries.
#include "clinux_fs.h"
#include "clinux_call.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

int clinux_name_to_handle(int fd, struct clinux_handle *out) {
    union { struct file_handle h; char space[sizeof(struct file_handle) + sizeof out->bytes]; } u;
    int mount_id;
    u.h.handle_bytes = sizeof out->bytes;
    int result = RETRY(name_to_handle_at(fd, "", &u.h, &mount_id, AT_EMPTY_PATH));
    if (result < 0) return result;
    out->type = u.h.handle_type;
    out->length = u.h.handle_bytes;
    memcpy(out->bytes, u.h.f_handle, u.h.handle_bytes);
    return 0;
}

int clinux_open_by_handle(int mount_fd, const struct clinux_handle *handle, int flags) {
    union { struct file_handle h; char space[sizeof(struct file_handle) + sizeof handle->bytes]; } u;
    if (handle->length > sizeof handle->bytes) return -EINVAL;
    u.h.handle_type = handle->type;
    u.h.handle_bytes = handle->length;
    memcpy(u.h.f_handle, handle->bytes, handle->length);
    return RETRY(open_by_handle_at(mount_fd, &u.h, flags | O_CLOEXEC));
}

int clinux_fs_uuid(int fd, uint8_t out[16]) {
    // struct fsuuid2 of linux 6.9 (__u8 len, __u8 uuid[16]), _IOR(0x15, 0, struct fsuuid2)
    struct { uint8_t len; uint8_t uuid[16]; } u = {0};
    int result = RETRY(ioctl(fd, _IOR(0x15, 0, __typeof__(u)), &u));
    if (result < 0) return result;
    if (u.len != 16) return -ENOTTY;
    memcpy(out, u.uuid, 16);
    return 0;
}

int clinux_generation(int fd, uint32_t *out) {
    // The kernel writes an int, although the ioctl's number encodes a long.
    unsigned long value = 0;
    int result = RETRY(ioctl(fd, FS_IOC_GETVERSION, &value));
    if (result < 0) return result;
    *out = (uint32_t)value;
    return 0;
}

size_t clinux_flags_size(unsigned command, bool *changes) {
    *changes = command == FS_IOC_SETFLAGS || command == FS_IOC_FSSETXATTR;
    switch (command) {
    // The kernel reads and writes an int, as for FS_IOC_GETVERSION.
    case FS_IOC_GETFLAGS:
    case FS_IOC_SETFLAGS: return sizeof(int);
    case FS_IOC_FSGETXATTR:
    case FS_IOC_FSSETXATTR: return sizeof(struct fsxattr);
    default: return 0;
    }
}
int clinux_flags(int fd, unsigned command, void *value) { return RETRY(ioctl(fd, command, value)); }

int clinux_folds_names(int fd) {
    int flags = 0;
    int result = RETRY(ioctl(fd, FS_IOC_GETFLAGS, &flags));
    return result < 0 ? result : (flags & FS_CASEFOLD_FL) != 0;
}
