#include "clinux_fs.h"
#include "clinux_call.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

const int clinux_O_PATH = O_PATH, clinux_O_DIRECT = O_DIRECT, clinux_O_TMPFILE = O_TMPFILE, clinux_O_NOATIME = O_NOATIME,
          clinux_O_LARGEFILE = O_LARGEFILE;
const int clinux_SEEK_DATA = SEEK_DATA, clinux_SEEK_HOLE = SEEK_HOLE;

int clinux_open_beneath(int dirfd, const char *path, int flags, mode_t mode, bool cross_mounts) {
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC),
        .mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode & 07777 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | (cross_mounts ? 0 : RESOLVE_NO_XDEV),
    };
    // RESOLVE_NO_SYMLINKS allows a final link under O_PATH | O_NOFOLLOW. EAGAIN: the kernel could
    // not rule out a race with a rename, so the walk is repeated.
    for (int attempt = 0;; attempt++) {
        long fd = RETRY(syscall(SYS_openat2, dirfd, path, &how, sizeof how));
        if (fd != -EAGAIN || attempt == 64) return (int)fd;
    }
}

int clinux_open_nameless(int dirfd, int flags, mode_t mode) { return clinux_open_beneath(dirfd, ".", flags | O_TMPFILE, mode, false); }

int clinux_openat(int dirfd, const char *path, int flags, mode_t mode) {
    return RETRY(openat(dirfd, path, flags | O_CLOEXEC, mode));
}

int clinux_close(int fd) {
    // Linux releases the number before it can return EINTR, so a second close could hit another
    // file.
    return close(fd) == -1 && errno != EINTR ? -errno : 0;
}

int clinux_open_nothing(void) {
    // A socket's magic link gives a path to it and nothing else: ENXIO to every other open(2),
    // EBADF to every use of O_PATH.
    int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (made < 0) return -errno;
    int result = clinux_reopen(made, O_PATH);
    close(made);
    return result;
}

int clinux_replace(int fd, int by) {
    // EBUSY: another thread is opening the number, which cannot be while it is ours.
    return RETRY(dup3(by, fd, O_CLOEXEC));
}

// The directory of this process's descriptors, opened once. -1 without /proc.
//
// From there a magic link is one name. From the root it is six names, two of them symbolic links.
// All threads that come here share one table of descriptors.
int clinux_own_descriptors(void) {
    static atomic_int known = 0;
    int fd = atomic_load_explicit(&known, memory_order_acquire);
    if (fd != 0) return fd - 1;
    int opened = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (opened == -1 || atomic_compare_exchange_strong(&known, &fd, opened + 1)) return opened;
    close(opened);
    return fd - 1;
}

int clinux_reopen(int fd, int flags) {
    char name[16];
    snprintf(name, sizeof name, "%d", fd);
    return RETRY(openat(clinux_own_descriptors(), name, (flags & ~O_NOFOLLOW) | O_CLOEXEC | O_NOCTTY));
}

int clinux_keep_access_time(int fd) {
    int flags = RETRY(fcntl(fd, F_GETFL));
    return flags < 0 ? flags : RETRY(fcntl(fd, F_SETFL, flags | O_NOATIME));
}

static int look(int dirfd, const char *path, int sync, struct clinux_statx *out) {
    struct statx x;
    int flags = sync | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (path == NULL || *path == 0 ? AT_EMPTY_PATH : 0);
    int result = RETRY(statx(dirfd, path == NULL ? "" : path, flags, STATX_BASIC_STATS | STATX_BTIME | 0x1000 /* STATX_MNT_ID */, &x));
    if (result < 0) return result;
    struct stat *st = &out->st;
    memset(out, 0, sizeof *out);
    st->st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    st->st_ino = x.stx_ino;
    st->st_nlink = x.stx_nlink;
    st->st_mode = x.stx_mode;
    st->st_uid = x.stx_uid;
    st->st_gid = x.stx_gid;
    st->st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
    st->st_size = (off_t)x.stx_size;
    st->st_blksize = (blksize_t)x.stx_blksize;
    st->st_blocks = (blkcnt_t)x.stx_blocks;
    st->st_atim.tv_sec = x.stx_atime.tv_sec;
    st->st_atim.tv_nsec = x.stx_atime.tv_nsec;
    st->st_mtim.tv_sec = x.stx_mtime.tv_sec;
    st->st_mtim.tv_nsec = x.stx_mtime.tv_nsec;
    st->st_ctim.tv_sec = x.stx_ctime.tv_sec;
    st->st_ctim.tv_nsec = x.stx_ctime.tv_nsec;
    out->has_birth = (x.stx_mask & STATX_BTIME) != 0;
    out->birth_seconds = x.stx_btime.tv_sec;
    out->birth_nanoseconds = x.stx_btime.tv_nsec;
    out->has_mount_id = (x.stx_mask & 0x1000) != 0;
    // The field follows stx_dev_minor in the kernel's struct. Older headers call it spare.
    memcpy(&out->mount_id, (char *)&x + 0x90, sizeof out->mount_id);
    out->is_mount_root = (x.stx_attributes & 0x2000 /* STATX_ATTR_MOUNT_ROOT */) != 0;
    return 0;
}

int clinux_statx(int dirfd, const char *path, struct clinux_statx *out) { return look(dirfd, path, AT_STATX_SYNC_AS_STAT, out); }

int clinux_statx_known(int fd, struct clinux_statx *out) { return look(fd, NULL, AT_STATX_DONT_SYNC, out); }

int clinux_fstatvfs(int fd, struct statvfs *out) { return RETRY(fstatvfs(fd, out)); }

int clinux_fstatfs_type(int fd, int64_t *type, uint64_t *fsid) {
    struct statfs s;
    int result = RETRY(fstatfs(fd, &s));
    if (result < 0) return result;
    *type = s.f_type;
    memcpy(fsid, &s.f_fsid, sizeof *fsid);
    return 0;
}

ssize_t clinux_getdents(int fd, void *buffer, size_t size) { return RETRY(syscall(SYS_getdents64, fd, buffer, size)); }
int64_t clinux_lseek(int fd, int64_t offset, int whence) { return RETRY(lseek(fd, offset, whence)); }

ssize_t clinux_pread(int fd, void *buffer, size_t size, off_t offset) { return RETRY(pread(fd, buffer, size, offset)); }

ssize_t clinux_pwrite(int fd, const void *buffer, size_t size, off_t offset, bool append) {
    if (!append) return RETRY(pwrite(fd, buffer, size, offset));
    struct iovec part = {(void *)buffer, size};
    return RETRY(pwritev2(fd, &part, 1, offset, RWF_APPEND));
}
ssize_t clinux_pwrite_in_place(int fd, const void *buffer, size_t size, off_t offset) {
    struct iovec part = {(void *)buffer, size};
    return RETRY(pwritev2(fd, &part, 1, offset, 0x20 /* RWF_NOAPPEND, Linux 6.9 */));
}

ssize_t clinux_copy_file_range(int from, off_t from_offset, int to, off_t to_offset, size_t size, unsigned flags) {
    return RETRY(copy_file_range(from, &from_offset, to, &to_offset, size, flags));
}
int clinux_clone(int from, int to) { return RETRY(ioctl(to, FICLONE, from)); }

int clinux_clone_fuse_device(int device, int from) {
    uint32_t number = (uint32_t)from;
    return RETRY(ioctl(device, _IOR(229, 0, uint32_t), &number));
}
int clinux_fallocate(int fd, int mode, off_t offset, off_t length) { return RETRY(fallocate(fd, mode, offset, length)); }
int clinux_fsync(int fd, bool data_only) { return data_only ? RETRY(fdatasync(fd)) : RETRY(fsync(fd)); }
int clinux_syncfs(int fd) { return RETRY(syncfs(fd)); }
int clinux_ftruncate(int fd, off_t size) { return RETRY(ftruncate(fd, size)); }

int clinux_mkdirat(int dirfd, const char *name, mode_t mode) { return RETRY(mkdirat(dirfd, name, mode)); }
int clinux_mknodat(int dirfd, const char *name, mode_t mode, dev_t device) { return RETRY(mknodat(dirfd, name, mode, device)); }
int clinux_symlinkat(const char *target, int dirfd, const char *name) { return RETRY(symlinkat(target, dirfd, name)); }
int clinux_unlinkat(int dirfd, const char *name, bool directory) {
    return RETRY(unlinkat(dirfd, name, directory ? AT_REMOVEDIR : 0));
}
int clinux_renameat2(int from, const char *name, int to, const char *new_name, unsigned flags) {
    return (int)RETRY(syscall(SYS_renameat2, from, name, to, new_name, flags));
}
int clinux_link_descriptor(int fd, int to, const char *new_name) {
    char path[40];
    magic_path(path, fd);
    return RETRY(linkat(AT_FDCWD, path, to, new_name, AT_SYMLINK_FOLLOW));
}
ssize_t clinux_readlink_descriptor(int fd, char *buffer, size_t size) { return RETRY(readlinkat(fd, "", buffer, size)); }
ssize_t clinux_descriptor_path(int fd, char *buffer, size_t size) {
    char path[40];
    magic_path(path, fd);
    return clinux_place_path(fd, buffer, RETRY(readlink(path, buffer, size)), size);
}

int clinux_ofd_set_lock(int fd, short type, int64_t start, int64_t length) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return RETRY(fcntl(fd, F_OFD_SETLK, &lock));
}
int clinux_ofd_get_lock(int fd, short *type, int64_t *start, int64_t *length, pid_t *pid) {
    struct flock lock = {.l_type = *type, .l_whence = SEEK_SET, .l_start = *start, .l_len = *length};
    int result = RETRY(fcntl(fd, F_OFD_GETLK, &lock));
    if (result < 0) return result;
    *type = lock.l_type;
    *start = lock.l_start;
    *length = lock.l_len;
    *pid = lock.l_pid;
    return 0;
}
int clinux_flock(int fd, int operation) { return RETRY(flock(fd, operation)); }

void *clinux_zeros(void) {
    static unsigned char zeros[CLINUX_ZEROS];
    return zeros;
}
