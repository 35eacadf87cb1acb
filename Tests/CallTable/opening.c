#include "table.h"

// Opens, records the attributes of the opened object, closes.
static int open_with(const char *path, int flags, mode_t mode) {
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, mode);
    if (fd < 0) return errno;
    struct stat status;
    if (fstat(fd, &status)) return errno;
    snprintf(detail, sizeof detail, "mode %o size %lld uid %u gid %u", status.st_mode,
        S_ISDIR(status.st_mode) ? 0 : (long long)status.st_size, status.st_uid, status.st_gid);
    return TRY(close(fd));
}

static int read_only(const char *path) { return open_with(path, O_RDONLY, 0); }
static int write_only(const char *path) { return open_with(path, O_WRONLY, 0); }
static int read_write(const char *path) { return open_with(path, O_RDWR, 0); }
static int append(const char *path) { return open_with(path, O_WRONLY | O_APPEND, 0); }
static int create(const char *path) { return open_with(path, O_WRONLY | O_CREAT, 0666); }
static int create_unreadable(const char *path) { return open_with(path, O_RDWR | O_CREAT, 0); }
static int create_set_id(const char *path) { return open_with(path, O_RDWR | O_CREAT, 06777); }
static int create_exclusively(const char *path) { return open_with(path, O_RDWR | O_CREAT | O_EXCL, 0640); }
static int truncate_open(const char *path) { return open_with(path, O_RDWR | O_TRUNC, 0); }
static int truncate_read_only(const char *path) { return open_with(path, O_RDONLY | O_TRUNC, 0); }
static int directory(const char *path) { return open_with(path, O_RDONLY | O_DIRECTORY, 0); }
static int create_directory(const char *path) { return open_with(path, O_RDONLY | O_CREAT | O_DIRECTORY, 0777); }
static int no_follow(const char *path) { return open_with(path, O_RDONLY | O_NOFOLLOW, 0); }
static int create_no_follow(const char *path) { return open_with(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600); }
static int path_only(const char *path) { return open_with(path, O_PATH, 0); }
static int path_no_follow(const char *path) { return open_with(path, O_PATH | O_NOFOLLOW, 0); }
static int no_access_time(const char *path) { return open_with(path, O_RDONLY | O_NOATIME, 0); }
static int synchronous(const char *path) { return open_with(path, O_RDWR | O_SYNC, 0); }
static int write_some(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int result = TRY(write(fd, "x", 1));
    close(fd);
    return result;
}
static int empty_write(const char *path) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int result = TRY(write(fd, "", 0));
    close(fd);
    return result;
}
static int wrong_direction(const char *path) {
    char byte;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int result = TRY(read(fd, &byte, 1));
    close(fd);
    return result;
}
static int bad_addresses(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    void *volatile nowhere = (void *)1;
    int first = TRY(pread(fd, nowhere, 8, 0)), second = TRY(pwrite(fd, nowhere, 8, 0)), third = TRY(pread(fd, detail, 1, -1));
    int fourth = TRY(lseek(fd, -1, SEEK_SET)), fifth = TRY(pwrite(fd, "x", 1, INT64_MAX)), sixth = TRY(ftruncate(fd, -1));
    snprintf(detail, sizeof detail, "%d %d %d %d %d %d", first, second, third, fourth, fifth, sixth);
    close(fd);
    return 0;
}
// A file open for writing cannot be run. The kernel checks this before it checks that the file is a
// program.
static int run_while_written(const char *path) {
    if (chmod(path, 0755)) return errno;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    char *none[] = {NULL};
    execve(path, none, none);
    int result = errno;
    close(fd);
    return result;
}
static int run(const char *path) {
    char *none[] = {NULL};
    execve(path, none, none);
    return errno;
}

const struct call opening_calls[] = {
    {"open O_RDONLY", read_only, false}, {"open O_WRONLY", write_only, false}, {"open O_RDWR", read_write, false},
    {"open O_APPEND", append, false},
    {"open O_CREAT", create, true}, {"open O_CREAT mode 0", create_unreadable, true}, {"open O_CREAT mode 6777", create_set_id, true},
    {"open O_CREAT O_EXCL", create_exclusively, true}, {"open O_TRUNC", truncate_open, true},
    {"open O_RDONLY O_TRUNC", truncate_read_only, true},
    {"open O_DIRECTORY", directory, false}, {"open O_CREAT O_DIRECTORY", create_directory, true}, {"open O_NOFOLLOW", no_follow, false},
    {"open O_CREAT O_NOFOLLOW", create_no_follow, true}, {"open O_PATH", path_only, false},
    {"open O_PATH O_NOFOLLOW", path_no_follow, false},
    {"open O_NOATIME", no_access_time, false}, {"open O_SYNC", synchronous, false}, {"write", write_some, true},
    {"write of nothing", empty_write, true},
    {"read where only writing is open", wrong_direction, false}, {"wrong addresses and offsets", bad_addresses, true},
    {"execve while it is open for writing", run_while_written, true}, {"execve", run, false}, {NULL, NULL, false},
};
