// Calls that read, write, move and reserve a file's bytes.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t count_of(const char *text) {
    long count = number(text);
    return count < 0 ? 0 : count > DATA_LIMIT ? DATA_LIMIT : (size_t)count;
}

static void say_read(ssize_t count) {
    say_result(count);
    if (count > 0) say("%08x", hash(self.data, (size_t)count, 2166136261u));
}

// The descriptor, with its position aligned if O_DIRECT needs that.
static int settled(const char *text) {
    int fd = slot(text);
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at > 0 && aligned(fd, at) != at) lseek(fd, aligned(fd, at), SEEK_SET);
    return fd;
}

// A listing of btrfs ends at a position so far out that a read there fails with EINVAL before
// EISDIR. In a mount it ends at its last entry.
static void say_read_at_position(int fd, ssize_t count) {
    struct stat status;
    if (count < 0 && errno == EINVAL && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) errno = EISDIR;
    say_read(count);
}
static void call_read(char **a) { say_read_at_position(slot(a[0]), read(settled(a[0]), self.data, (size_t)aligned(slot(a[0]), (long)count_of(a[1])))); }
static void call_pread(char **a) {
    int fd = slot(a[0]);
    say_read(pread(fd, self.data, (size_t)aligned(fd, (long)count_of(a[1])), aligned(fd, number(a[2]))));
}
// Pieces of a third, a page and the rest. They are whole pages if O_DIRECT needs that.
static void pieces(struct iovec parts[3], int fd, size_t count) {
    size_t first = (size_t)aligned(fd, (long)(count / 3)), second = count - first > 4096 ? 4096 : (size_t)aligned(fd, (long)(count - first));
    parts[0] = (struct iovec){self.data, first};
    parts[1] = (struct iovec){self.data + first, second};
    parts[2] = (struct iovec){self.data + first + second, (size_t)aligned(fd, (long)(count - first - second))};
}
static void call_readv(char **a) {
    struct iovec parts[3];
    pieces(parts, slot(a[0]), count_of(a[1]));
    say_read_at_position(slot(a[0]), readv(settled(a[0]), parts, 3));
}
static void call_write(char **a) {
    size_t count = (size_t)aligned(slot(a[0]), (long)count_of(a[1]));
    fill_data(count, (unsigned)number(a[2]));
    say_result(write(settled(a[0]), self.data, count));
}
// The kernel has the set-id bits cleared before it asks a mount for an offset beyond any file of
// the filesystem (docs/conformance.md).
static bool is_too_far(int fd, long offset) {
    struct stat status;
    bool is = offset >= 1L << 44 && fstat(fd, &status) == 0 && status.st_mode & (S_ISUID | S_ISGID);
    if (is) say("too far");
    return is;
}
static void call_pwrite(char **a) {
    int fd = slot(a[0]);
    if (is_too_far(fd, number(a[2]))) return;
    size_t count = (size_t)aligned(fd, (long)count_of(a[1]));
    fill_data(count, (unsigned)number(a[3]));
    say_result(pwrite(fd, self.data, count, aligned(fd, number(a[2]))));
}
static void call_writev(char **a) {
    struct iovec parts[3];
    fill_data(DATA_LIMIT, (unsigned)number(a[2]));
    pieces(parts, slot(a[0]), count_of(a[1]));
    say_result(writev(settled(a[0]), parts, 3));
}
// With RWF_APPEND or RWF_DSYNC for one write. O_DIRECT cannot write at an unaligned end of a file.
static void call_pwritev2(char **a) {
    int fd = slot(a[0]);
    size_t count = (size_t)aligned(fd, (long)count_of(a[1]));
    fill_data(count, (unsigned)number(a[3]));
    struct iovec part = {self.data, count};
    int flags = (int)number(a[4]) & (aligned(fd, 1) == 0 ? ~RWF_APPEND : -1);
    say_result(pwritev2(fd, &part, 1, aligned(fd, number(a[2])), flags));
}
// Positions in a directory are numbers of the filesystem, so they are taken from listings
// (directories.c). Here only its beginning is used.
static void call_lseek(char **a) {
    struct stat status;
    bool is_directory = fstat(slot(a[0]), &status) == 0 && S_ISDIR(status.st_mode);
    say_result(lseek(slot(a[0]), is_directory ? 0 : number(a[1]), is_directory ? SEEK_SET : (int)number(a[2])));
}
static void call_ftruncate(char **a) { say_result(ftruncate(slot(a[0]), number(a[1]))); }
static void call_truncate(char **a) {
    int directory;
    say_result(truncate(place(a[0], &directory), number(a[1])));
}
// Without a limit of size: on some filesystems a call that the limit refuses has already changed
// the times.
static void call_fallocate(char **a) {
    struct rlimit limit, none;
    getrlimit(RLIMIT_FSIZE, &limit);
    none = (struct rlimit){limit.rlim_max, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    int result = fallocate(slot(a[0]), (int)number(a[1]), number(a[2]), number(a[3])), error = errno;
    setrlimit(RLIMIT_FSIZE, &limit);
    errno = error;
    say_result(result);
}
// The kernel moves bytes between files through its own memory, which fits O_DIRECT by chance alone.
static bool is_direct(int fd) { return aligned(fd, 1) == 0; }
// FROM OFFSET TO OFFSET COUNT. An offset of -1 is the descriptor's own position.
static void call_copy(char **a) {
    off_t from = number(a[1]), to = number(a[3]);
    if (is_direct(slot(a[0])) || is_direct(slot(a[2]))) say("not for O_DIRECT");
    else say_result(copy_file_range(slot(a[0]), from < 0 ? NULL : &from, slot(a[2]), to < 0 ? NULL : &to, count_of(a[4]), 0));
}
// Not from the position of a directory's listing, which can be beyond any file of the filesystem
// (docs/conformance.md).
static void call_sendfile(char **a) {
    off_t from = number(a[2]);
    struct stat status;
    if (from < 0 && fstat(slot(a[1]), &status) == 0 && S_ISDIR(status.st_mode)) say("a directory");
    else if (is_direct(slot(a[0])) || is_direct(slot(a[1]))) say("not for O_DIRECT");
    else say_result(sendfile(slot(a[0]), slot(a[1]), from < 0 ? NULL : &from, count_of(a[3])));
}
static void call_fsync(char **a) { say_result(fsync(slot(a[0]))); }
static void call_fdatasync(char **a) { say_result(fdatasync(slot(a[0]))); }
static void call_syncfs(char **a) { say_result(syncfs(slot(a[0]))); }
static void call_fadvise(char **a) {
    errno = posix_fadvise(slot(a[0]), 0, 0, (int)number(a[1]));
    say_result(errno == 0 ? 0 : -1);
}

const struct call calls_data[] = {
    {"read", 2, call_read},           {"pread", 3, call_pread},         {"readv", 2, call_readv},   {"write", 3, call_write},
    {"pwrite", 4, call_pwrite},       {"writev", 3, call_writev},       {"pwritev2", 5, call_pwritev2},
    {"lseek", 3, call_lseek},
    {"ftruncate", 2, call_ftruncate}, {"truncate", 2, call_truncate},   {"fallocate", 4, call_fallocate}, {"copy", 5, call_copy},
    {"sendfile", 4, call_sendfile},   {"fsync", 1, call_fsync},   {"fdatasync", 1, call_fdatasync},
    {"syncfs", 1, call_syncfs},       {"fadvise", 2, call_fadvise},     {NULL, 0, NULL},
};
