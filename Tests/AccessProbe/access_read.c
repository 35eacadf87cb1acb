#include "probe.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static unsigned char buffer[FILE_SIZE] __attribute__((aligned(4096)));

static int seek_and_read(int fd, size_t offset) {
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0) return errno;
    return check_pattern(buffer, read(fd, buffer, PAGE), offset);
}
static int do_read(struct probe *p) { return seek_and_read(p->read_fd, 0); }
static int do_read_dup(struct probe *p) { return seek_and_read(p->dup_fd, PAGE); }
static int do_read_passed(struct probe *p) { return seek_and_read(p->passed_fd, 2 * PAGE); }
static int do_read_new_dup(struct probe *p) {
    int fd = fcntl(p->read_fd, F_DUPFD_CLOEXEC, 100);
    int result = seek_and_read(fd, 0);
    close(fd);
    return result;
}
static int do_pread(struct probe *p) { return check_pattern(buffer, pread(p->read_fd, buffer, sizeof buffer, 0), 0); }
static int do_pread_rdwr(struct probe *p) { return check_pattern(buffer, pread(p->rdwr_fd, buffer, PAGE, 0), 0); }
static int do_pread_unlinked(struct probe *p) { return check_pattern(buffer, pread(p->unlinked_fd, buffer, PAGE, 0), 0); }
static int do_readv(struct probe *p) {
    struct iovec parts[2] = {{buffer, 100}, {buffer + 100, 100}};
    if (lseek(p->read_fd, 0, SEEK_SET) < 0) return errno;
    return check_pattern(buffer, readv(p->read_fd, parts, 2), 0);
}
static int do_preadv(struct probe *p) {
    struct iovec part = {buffer, PAGE};
    return check_pattern(buffer, preadv(p->read_fd, &part, 1, PAGE), PAGE);
}
static int do_preadv2(struct probe *p) {
    struct iovec part = {buffer, PAGE};
    return check_pattern(buffer, preadv2(p->read_fd, &part, 1, 0, 0), 0);
}
// RWF_NOWAIT reads only cached pages, so it shows first whether the kernel missed an invalidation.
static int do_preadv2_nowait(struct probe *p) {
    struct iovec part = {buffer, PAGE};
    ssize_t n = preadv2(p->read_fd, &part, 1, 0, RWF_NOWAIT);
    if (n < 0 && errno == EAGAIN) return EAGAIN;
    return check_pattern(buffer, n, 0);
}
static int do_direct_read(struct probe *p) {
    if (p->direct_fd < 0) return SKIPPED;
    return check_pattern(buffer, pread(p->direct_fd, buffer, PAGE, 0), 0);
}
static int do_sendfile(struct probe *p) {
    off_t offset = 0;
    if (lseek(p->memory_fd, 0, SEEK_SET) < 0) return errno;
    ssize_t n = sendfile(p->memory_fd, p->read_fd, &offset, PAGE);
    if (n < 0) return errno;
    return check_pattern(buffer, pread(p->memory_fd, buffer, (size_t)n, 0), 0);
}
static int do_splice(struct probe *p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return errno;
    loff_t offset = 0;
    ssize_t n = splice(p->read_fd, &offset, ends[1], NULL, PAGE, 0);
    int result = n < 0 ? errno : check_pattern(buffer, read(ends[0], buffer, PAGE), 0);
    close(ends[0]);
    close(ends[1]);
    return result;
}
static int do_copy_out(struct probe *p) {
    loff_t from = 0, to = 0;
    return RESULT(copy_file_range(p->read_fd, &from, p->target_fd, &to, PAGE, 0));
}
static int do_seek_data(struct probe *p) { return RESULT(lseek(p->read_fd, 0, SEEK_DATA)); }
static int do_seek_hole(struct probe *p) { return RESULT(lseek(p->read_fd, 0, SEEK_HOLE)); }
static int do_seek_end(struct probe *p) { return RESULT(lseek(p->read_fd, 0, SEEK_END)); }
static int do_fstat(struct probe *p) {
    struct stat st;
    if (fstat(p->read_fd, &st)) return errno;
    return st.st_size == FILE_SIZE ? DONE : WRONG;
}
static int do_fstat_unlinked(struct probe *p) {
    struct stat st;
    if (fstat(p->unlinked_fd, &st)) return errno;
    return st.st_nlink == 0 ? DONE : WRONG;
}
static int do_statx(struct probe *p) {
    struct statx sx;
    return RESULT(statx(p->read_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx));
}
static int do_statx_force(struct probe *p) {
    struct statx sx;
    return RESULT(statx(p->read_fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &sx));
}
static int do_statx_dont_sync(struct probe *p) {
    struct statx sx;
    return RESULT(statx(p->read_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &sx));
}
static int do_fstatfs(struct probe *p) {
    struct statfs sf;
    return RESULT(fstatfs(p->read_fd, &sf));
}
static int do_fgetxattr(struct probe *p) { return RESULT(fgetxattr(p->read_fd, "user.probe", buffer, sizeof buffer)); }
static int do_flistxattr(struct probe *p) { return RESULT(flistxattr(p->read_fd, (char *)buffer, sizeof buffer)); }
static int reopen(int fd, int flags) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    if (again < 0) return errno;
    int result = (flags & O_ACCMODE) == O_WRONLY ? DONE : check_pattern(buffer, pread(again, buffer, PAGE, 0), 0);
    close(again);
    return result;
}
static int do_reopen(struct probe *p) { return reopen(p->read_fd, O_RDONLY); }
static int do_reopen_write(struct probe *p) { return reopen(p->read_fd, O_RDWR); }
static int do_reopen_unlinked(struct probe *p) { return reopen(p->unlinked_fd, O_RDONLY); }
static int do_reopen_path(struct probe *p) { return reopen(p->path_fd, O_RDONLY); }
static int do_fionread(struct probe *p) {
    int n;
    return RESULT(ioctl(p->read_fd, FIONREAD, &n));
}
static int do_poll(struct probe *p) {
    struct pollfd item = {p->read_fd, POLLIN, 0};
    return RESULT(poll(&item, 1, 0));
}
static int do_readahead(struct probe *p) { return RESULT(readahead(p->read_fd, 0, FILE_SIZE)); }
static int do_fstat_path(struct probe *p) {
    struct stat st;
    return RESULT(fstat(p->path_fd, &st));
}
static int do_getxattr_path(struct probe *p) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->path_fd);
    return RESULT(getxattr(path, "user.probe", buffer, sizeof buffer));
}
static int do_access_path(struct probe *p) { return RESULT(faccessat(p->path_fd, "", R_OK, AT_EMPTY_PATH)); }
static int do_readlink_path(struct probe *p) { return RESULT(readlinkat(p->link_fd, "", (char *)buffer, PAGE)); }
static int do_fstat_link(struct probe *p) {
    struct stat st;
    return RESULT(fstatat(p->link_fd, "", &st, AT_EMPTY_PATH));
}
static int do_exec_path(struct probe *p) {
    char path[NAMES];
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->prog_fd);
    return run_program(path, "exit");
}
static int do_open_by_handle(struct probe *p) {
    if (p->handle->handle_bytes == 0) return SKIPPED;
    int fd = open_by_handle_at(p->dir_fd, p->handle, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = check_pattern(buffer, pread(fd, buffer, PAGE, 0), 0);
    close(fd);
    return result;
}
// The pipe belongs to the kernel, which sends the filesystem no request once it is open.
static int do_fifo(struct probe *p) {
    char byte = 'x';
    if (write(p->fifo_fd, &byte, 1) != 1) return errno;
    return read(p->fifo_fd, &byte, 1) == 1 && byte == 'x' ? DONE : errno;
}
// close(2) never fails, even for a refused descriptor, which is opened again for the next round.
static int do_close(struct probe *p) {
    if (p->close_fd < 0) return SKIPPED;
    int result = RESULT(close(p->close_fd));
    p->close_fd = open(in(p, "close"), O_RDWR | O_CLOEXEC);
    return result;
}

const struct access reading_accesses[] = {
    {"fd-read", "read", AFTER_REFUSED, false, do_read},
    {"fd-dup", "read", AFTER_REFUSED, false, do_read_dup},
    {"fd-dup", "fcntl-dupfd-read", AFTER_REFUSED, false, do_read_new_dup},
    {"fd-passed", "read", AFTER_REFUSED, false, do_read_passed},
    {"fd-read", "pread", AFTER_REFUSED, false, do_pread},
    {"fd-rdwr", "pread", AFTER_REFUSED, false, do_pread_rdwr},
    {"fd-unlinked", "pread", AFTER_REFUSED, false, do_pread_unlinked},
    {"fd-read", "readv", AFTER_REFUSED, false, do_readv},
    {"fd-read", "preadv", AFTER_REFUSED, false, do_preadv},
    {"fd-read", "preadv2", AFTER_REFUSED, false, do_preadv2},
    {"fd-read", "preadv2-nowait", AFTER_FAILS, false, do_preadv2_nowait},
    {"fd-direct", "pread-o_direct", AFTER_REFUSED, false, do_direct_read},
    {"fd-read", "sendfile", AFTER_REFUSED, false, do_sendfile},
    {"fd-read", "splice", AFTER_REFUSED, false, do_splice},
    {"fd-read", "copy_file_range-from", AFTER_REFUSED, true, do_copy_out},
    {"fd-read", "lseek-data", AFTER_REFUSED, false, do_seek_data},
    {"fd-read", "lseek-hole", AFTER_REFUSED, false, do_seek_hole},
    {"fd-read", "lseek-end", AFTER_REFUSED, false, do_seek_end},
    {"fd-read", "fstat", AFTER_REFUSED, false, do_fstat},
    {"fd-unlinked", "fstat", AFTER_REFUSED, false, do_fstat_unlinked},
    {"fd-read", "statx", AFTER_REFUSED, false, do_statx},
    {"fd-read", "statx-force-sync", AFTER_REFUSED, false, do_statx_force},
    {"fd-read", "statx-dont-sync", AFTER_OPEN, false, do_statx_dont_sync},
    {"fd-read", "fstatfs", AFTER_REFUSED, false, do_fstatfs},
    {"fd-read", "fgetxattr", AFTER_REFUSED, false, do_fgetxattr},
    {"fd-read", "flistxattr", AFTER_REFUSED, false, do_flistxattr},
    {"fd-read", "open-proc-fd", AFTER_REFUSED, false, do_reopen},
    {"fd-read", "open-proc-fd-for-writing", AFTER_REFUSED, true, do_reopen_write},
    {"fd-unlinked", "open-proc-fd", AFTER_REFUSED, false, do_reopen_unlinked},
    {"fd-read", "ioctl-fionread", AFTER_OPEN, false, do_fionread},
    {"fd-read", "poll", AFTER_OPEN, false, do_poll},
    {"fd-read", "readahead", AFTER_OPEN, false, do_readahead},
    {"o_path", "fstat", AFTER_REFUSED, false, do_fstat_path},
    {"o_path", "open-proc-fd", AFTER_REFUSED, false, do_reopen_path},
    {"o_path", "getxattr-proc-fd", AFTER_REFUSED, false, do_getxattr_path},
    {"o_path", "faccessat", AFTER_REFUSED, false, do_access_path},
    {"o_path-link", "readlinkat", AFTER_REFUSED, false, do_readlink_path},
    {"o_path-link", "fstatat", AFTER_REFUSED, false, do_fstat_link},
    {"o_path-program", "execve-proc-fd", AFTER_REFUSED, false, do_exec_path},
    {"handle", "open_by_handle_at", AFTER_FAILS, false, do_open_by_handle},
    {"fd-fifo", "write-and-read", AFTER_WORKS, false, do_fifo},
    {"fd-close", "close", AFTER_WORKS, false, do_close},
    {NULL, NULL, NULL, false, NULL},
};
