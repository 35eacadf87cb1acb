#include "probe.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>

// Every write repeats the bytes of the file, so that rounds can be repeated and contents compared.
static unsigned char buffer[PAGE] __attribute__((aligned(4096)));

static void *bytes_at(size_t offset) {
    for (size_t i = 0; i < sizeof buffer; i++) buffer[i] = pattern(offset + i);
    return buffer;
}
static int do_write(struct probe *p) {
    if (lseek(p->write_fd, 0, SEEK_SET) < 0) return errno;
    return RESULT(write(p->write_fd, bytes_at(0), 100));
}
static int do_pwrite(struct probe *p) { return RESULT(pwrite(p->write_fd, bytes_at(PAGE), PAGE, PAGE)); }
static int do_pwrite_unlinked(struct probe *p) { return RESULT(pwrite(p->unlinked_fd, bytes_at(0), PAGE, 0)); }
static int do_writev(struct probe *p) {
    struct iovec part = {bytes_at(0), 50};
    if (lseek(p->write_fd, 0, SEEK_SET) < 0) return errno;
    return RESULT(writev(p->write_fd, &part, 1));
}
static int do_pwritev2_sync(struct probe *p) {
    struct iovec part = {bytes_at(0), 50};
    return RESULT(pwritev2(p->write_fd, &part, 1, 0, RWF_DSYNC));
}
static int do_append(struct probe *p) { return RESULT(write(p->append_fd, "x", 1)); }
static int do_direct_write(struct probe *p) {
    if (p->direct_fd < 0) return SKIPPED;
    return RESULT(pwrite(p->direct_fd, bytes_at(0), PAGE, 0));
}
static int do_splice_in(struct probe *p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return errno;
    if (write(ends[1], bytes_at(0), 100) < 0) return errno;
    loff_t offset = 0;
    int result = RESULT(splice(ends[0], NULL, p->write_fd, &offset, 100, 0));
    close(ends[0]);
    close(ends[1]);
    return result;
}
static int do_sendfile_in(struct probe *p) {
    off_t offset = 0;
    if (pwrite(p->memory_fd, bytes_at(0), PAGE, 0) < 0 || lseek(p->write_fd, 0, SEEK_SET) < 0) return errno;
    return RESULT(sendfile(p->write_fd, p->memory_fd, &offset, PAGE));
}
static int do_copy_in(struct probe *p) {
    loff_t from = PAGE, to = PAGE;
    return RESULT(copy_file_range(p->rdwr_fd, &from, p->target_fd, &to, PAGE, 0));
}
static int do_fsync(struct probe *p) { return RESULT(fsync(p->write_fd)); }
static int do_fdatasync(struct probe *p) { return RESULT(fdatasync(p->write_fd)); }
static int do_fsync_read(struct probe *p) { return RESULT(fsync(p->read_fd)); }
static int do_sync_range(struct probe *p) { return RESULT(sync_file_range(p->write_fd, 0, 0, SYNC_FILE_RANGE_WRITE)); }
static int do_syncfs(struct probe *p) { return RESULT(syncfs(p->write_fd)); }
static int do_ftruncate(struct probe *p) { return RESULT(ftruncate(p->write_fd, FILE_SIZE)); }
static int do_ftruncate_unlinked(struct probe *p) { return RESULT(ftruncate(p->unlinked_fd, FILE_SIZE)); }
static int do_fallocate(struct probe *p) { return RESULT(fallocate(p->write_fd, 0, 0, FILE_SIZE)); }
static int do_fallocate_keep(struct probe *p) { return RESULT(fallocate(p->write_fd, FALLOC_FL_KEEP_SIZE, FILE_SIZE, PAGE)); }
static int do_punch(struct probe *p) {
    return RESULT(fallocate(p->target_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8 * PAGE, PAGE));
}
static int do_fchmod(struct probe *p) { return RESULT(fchmod(p->write_fd, 0644)); }
static int do_fchown(struct probe *p) { return RESULT(fchown(p->write_fd, geteuid(), getegid())); }
static int do_futimens(struct probe *p) { return RESULT(futimens(p->write_fd, NULL)); }
static int do_futimens_exact(struct probe *p) {
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    return RESULT(futimens(p->write_fd, times));
}
static int do_futimens_modified(struct probe *p) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    return RESULT(futimens(p->write_fd, times));
}
static int do_fsetxattr(struct probe *p) { return RESULT(fsetxattr(p->write_fd, "user.more", "v", 1, 0)); }
static int do_fremovexattr(struct probe *p) {
    int result = RESULT(fremovexattr(p->write_fd, "user.probe"));
    if (result == DONE) fsetxattr(p->write_fd, "user.probe", "value", 5, 0);
    return result;
}
static int get_flags(int fd) {
    int flags = 0;
    return RESULT(ioctl(fd, FS_IOC_GETFLAGS, &flags));
}
static int set_flags(int fd) {
    int flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags)) return errno;
    flags ^= FS_NODUMP_FL;
    return RESULT(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}
static int do_get_flags(struct probe *p) { return get_flags(p->read_fd); }
static int do_set_flags(struct probe *p) { return set_flags(p->write_fd); }
static int do_get_flags_of_directory(struct probe *p) { return get_flags(p->dir_fd); }
static int do_set_flags_of_directory(struct probe *p) { return set_flags(p->dir_fd); }
static int do_chmod_path(struct probe *p) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->path_fd);
    return RESULT(chmod(path, 0644));
}
static int do_link_path(struct probe *p) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->path_fd);
    int result = RESULT(linkat(AT_FDCWD, path, p->dir_fd, "linked-fd", AT_SYMLINK_FOLLOW));
    if (result == DONE) unlinkat(p->dir_fd, "linked-fd", 0);
    return result;
}
static int do_write_reopened(struct probe *p) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->path_fd);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = RESULT(pwrite(fd, bytes_at(0), 100, 0));
    close(fd);
    return result;
}

const struct access writing_accesses[] = {
    {"fd-write", "write", AFTER_REFUSED, true, do_write},
    {"fd-write", "pwrite", AFTER_REFUSED, true, do_pwrite},
    {"fd-unlinked", "pwrite", AFTER_REFUSED, true, do_pwrite_unlinked},
    {"fd-write", "writev", AFTER_REFUSED, true, do_writev},
    {"fd-write", "pwritev2-dsync", AFTER_REFUSED, true, do_pwritev2_sync},
    {"fd-append", "write", AFTER_REFUSED, true, do_append},
    {"fd-direct", "pwrite-o_direct", AFTER_REFUSED, true, do_direct_write},
    {"fd-write", "splice-in", AFTER_REFUSED, true, do_splice_in},
    {"fd-write", "sendfile-in", AFTER_REFUSED, true, do_sendfile_in},
    {"fd-rdwr", "copy_file_range", AFTER_REFUSED, true, do_copy_in},
    {"fd-write", "fsync", AFTER_REFUSED, false, do_fsync},
    {"fd-write", "fdatasync", AFTER_REFUSED, false, do_fdatasync},
    {"fd-read", "fsync", AFTER_REFUSED, false, do_fsync_read},
    {"fd-write", "sync_file_range", AFTER_OPEN, false, do_sync_range},
    {"fd-write", "syncfs", AFTER_OPEN, false, do_syncfs},
    {"fd-write", "ftruncate", AFTER_REFUSED, true, do_ftruncate},
    {"fd-unlinked", "ftruncate", AFTER_REFUSED, true, do_ftruncate_unlinked},
    {"fd-write", "fallocate", AFTER_REFUSED, true, do_fallocate},
    {"fd-write", "fallocate-keep-size", AFTER_REFUSED, true, do_fallocate_keep},
    {"fd-rdwr", "fallocate-punch-hole", AFTER_REFUSED, true, do_punch},
    {"fd-write", "fchmod", AFTER_REFUSED, true, do_fchmod},
    {"fd-write", "fchown", AFTER_REFUSED, true, do_fchown},
    {"fd-write", "futimens-now", AFTER_REFUSED, true, do_futimens},
    {"fd-write", "futimens", AFTER_REFUSED, true, do_futimens_exact},
    {"fd-write", "futimens-modified", AFTER_REFUSED, true, do_futimens_modified},
    {"fd-write", "fsetxattr", AFTER_REFUSED, true, do_fsetxattr},
    {"fd-write", "fremovexattr", AFTER_REFUSED, true, do_fremovexattr},
    {"fd-read", "getflags", AFTER_REFUSED, false, do_get_flags},
    {"fd-write", "setflags", AFTER_REFUSED, true, do_set_flags},
    {"dirfd", "getflags", AFTER_REFUSED, false, do_get_flags_of_directory},
    {"dirfd", "setflags", AFTER_REFUSED, true, do_set_flags_of_directory},
    {"o_path", "chmod-proc-fd", AFTER_REFUSED, true, do_chmod_path},
    {"o_path", "linkat-proc-fd", AFTER_REFUSED, true, do_link_path},
    {"o_path", "open-proc-fd-and-write", AFTER_REFUSED, true, do_write_reopened},
    {NULL, NULL, NULL, false, NULL},
};
