// Attributes of the inode behind an O_PATH descriptor.
#include "clinux_fs.h"
#include "clinux_call.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sys/syscall.h>
#include <unistd.h>

int clinux_chmod_descriptor(int fd, mode_t mode) {
    char path[40];
    magic_path(path, fd);
    return RETRY(chmod(path, mode));
}
int clinux_chown_descriptor(int fd, uid_t uid, gid_t gid) { return RETRY(fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)); }
int clinux_truncate_descriptor(int fd, off_t size) {
    char path[40];
    magic_path(path, fd);
    return RETRY(truncate(path, size));
}
int clinux_statx_sync(int fd) {
    struct statx x;
    return RETRY(statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &x));
}
int clinux_may_write(int fd) {
    char path[40];
    magic_path(path, fd);
    return RETRY(faccessat(AT_FDCWD, path, W_OK, 0));
}
int clinux_may_make_in(int fd) {
    // AT_EACCESS: with the thread's rights, and not those of the process's real user. The C library
    // takes no empty path.
    return RETRY((int)syscall(SYS_faccessat2, fd, "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH));
}
int clinux_utimens_descriptor(int fd, const struct timespec times[2]) {
    // Linux 5.8 and later take an empty path. Before, the magic link works, except for a symbolic
    // link.
    int result = RETRY(utimensat(fd, "", times, AT_EMPTY_PATH));
    if (result != -EINVAL) return result;
    char path[40];
    magic_path(path, fd);
    return RETRY(utimensat(AT_FDCWD, path, times, 0));
}
ssize_t clinux_getxattr_descriptor(int fd, const char *name, void *value, size_t size) {
    char path[40];
    magic_path(path, fd);
    return RETRY(getxattr(path, name, value, size));
}
ssize_t clinux_listxattr_descriptor(int fd, char *list, size_t size) {
    char path[40];
    magic_path(path, fd);
    return RETRY(listxattr(path, list, size));
}
int clinux_setxattr_descriptor(int fd, const char *name, const void *value, size_t size, int flags) {
    char path[40];
    magic_path(path, fd);
    return RETRY(setxattr(path, name, value, size, flags));
}
int clinux_removexattr_descriptor(int fd, const char *name) {
    char path[40];
    magic_path(path, fd);
    return RETRY(removexattr(path, name));
}
