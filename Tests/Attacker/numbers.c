// numbers DIRECTORY...: makes every call on every name in the directories with numbers at their
// limits, and ignores the results. It harms no files outside them.
#include "attacker.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static const int64_t offsets[] = {
    0, 1, 4095, 4096, INT32_MAX, UINT32_MAX, INT64_MAX - 4096, INT64_MAX - 4095, INT64_MAX - 1, INT64_MAX, INT64_MIN, INT64_MIN + 1, -1, -4096,
};
enum { OFFSETS = sizeof offsets / sizeof *offsets };
static char data[128 << 10];
static long calls, refused;

static void note(int64_t result) {
    calls++;
    if (result < 0) refused++;
}

static void seek(int fd) {
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 99};
    for (int i = 0; i < OFFSETS; i++)
        for (int w = 0; w < 6; w++) note(lseek(fd, offsets[i], whences[w]));
    lseek(fd, 0, SEEK_SET);
}

static void read_and_write(int fd) {
    for (int i = 0; i < OFFSETS; i++) {
        note(pread(fd, data, 1, offsets[i]));
        note(pread(fd, data, sizeof data, offsets[i]));
        note(pwrite(fd, data, 1, offsets[i]));
        note(pwrite(fd, data, 4097, offsets[i]));
        struct iovec part = {data, 100};
        note(pwritev2(fd, &part, 1, offsets[i], RWF_APPEND));
        note(ftruncate(fd, offsets[i]));
        note(posix_fadvise(fd, offsets[i], offsets[OFFSETS - 1 - i], POSIX_FADV_WILLNEED));
        for (int j = 0; j < OFFSETS; j++) {
            note(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsets[i], offsets[j]));
            // The filesystem refuses large allocations, so only small ones are made.
            if (offsets[j] <= 4096 || offsets[j] > INT64_MAX / 2) note(fallocate(fd, FALLOC_FL_KEEP_SIZE, offsets[i], offsets[j]));
            off_t from = offsets[i], to = offsets[j];
            note(copy_file_range(fd, &from, fd, &to, 4096, 0));
            from = offsets[i], to = offsets[j];
            note(copy_file_range(fd, &from, fd, &to, SIZE_MAX, 0));
        }
    }
    // Writes the last byte that a file can have, so that the search for its hole reaches the limit.
    note(pwrite(fd, data, 1, INT64_MAX - 1));
    seek(fd);
    note(ftruncate(fd, 100));
}

static void lock(int fd) {
    static const short types[] = {F_RDLCK, F_WRLCK, F_UNLCK, 99};
    for (int i = 0; i < OFFSETS; i++)
        for (int j = 0; j < OFFSETS; j++)
            for (int t = 0; t < 4; t++)
                for (int open = 0; open < 2; open++) {
                    struct flock range = {.l_type = types[t], .l_whence = SEEK_SET, .l_start = offsets[i], .l_len = offsets[j]};
                    note(fcntl(fd, open ? F_OFD_SETLK : F_SETLK, &range));
                    range = (struct flock){.l_type = types[t], .l_whence = SEEK_SET, .l_start = offsets[i], .l_len = offsets[j]};
                    note(fcntl(fd, open ? F_OFD_GETLK : F_GETLK, &range));
                }
    struct flock all = {.l_type = F_UNLCK};
    note(fcntl(fd, F_SETLK, &all));
    note(flock(fd, LOCK_EX | LOCK_NB));
    note(flock(fd, LOCK_UN));
}

static void attributes(int directory, const char *name) {
    static const long nanoseconds[] = {0, 999999999, 1000000000, -1, UTIME_NOW, UTIME_OMIT, INT64_MAX, INT64_MIN};
    char path[512];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%.400s", directory, name);
    for (int i = 0; i < OFFSETS; i++)
        for (int n = 0; n < 8; n++) {
            struct timespec times[2] = {{offsets[i], nanoseconds[n]}, {offsets[OFFSETS - 1 - i], nanoseconds[7 - n]}};
            note(utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW));
        }
    struct stat status;
    struct statx extended;
    note(fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW));
    note(statx(directory, name, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, UINT32_MAX >> 1, &extended));
    for (unsigned mode = 1; mode != 0; mode <<= 1) note(fchmodat(directory, name, mode, 0));
    note(fchmodat(directory, name, 0666, 0));
    note(fchownat(directory, name, UINT32_MAX - 1, UINT32_MAX - 1, AT_SYMLINK_NOFOLLOW));
    note(fchownat(directory, name, UINT32_MAX, UINT32_MAX, AT_SYMLINK_NOFOLLOW));
    for (int i = 0; i < OFFSETS; i++) note(truncate(path, offsets[i]));
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, sizeof data};
    for (int i = 0; i < 6; i++) {
        note(lgetxattr(path, "user.x", data, sizes[i]));
        note(llistxattr(path, data, sizes[i]));
        note(lsetxattr(path, "user.x", data, sizes[i], 0));
        note(lgetxattr(path, "system.posix_acl_access", data, sizes[i]));
    }
    note(lremovexattr(path, "user.x"));
    note(readlinkat(directory, name, data, sizeof data));
    struct statvfs space;
    note(statvfs(path, &space));
}

static void list(int fd) {
    for (int i = 0; i < OFFSETS; i++) {
        note(lseek(fd, offsets[i], SEEK_SET));
        note(getdents64(fd, data, sizeof data));
        note(getdents64(fd, data, 24));
    }
    lseek(fd, 0, SEEK_SET);
    for (int part = 0; part < 300; part++) {
        ssize_t count = getdents64(fd, data, sizeof data);
        note(count);
        if (count <= 0) break;
    }
}

static void control(int fd) {
    // Repeated, because a filesystem may return another number each time.
    for (int i = 0; i < 24; i++) {
        int flags = 0;
        struct fsxattr more = {0};
        note(ioctl(fd, FS_IOC_GETFLAGS, &flags));
        note(ioctl(fd, FS_IOC_FSGETXATTR, &more));
        if (i % 8) continue;
        note(ioctl(fd, FS_IOC_SETFLAGS, &flags));
        note(ioctl(fd, FS_IOC_FSSETXATTR, &more));
    }
    note(ioctl(fd, _IOWR('x', 1, int[64]), data));
}

static void try_name(int directory, const char *name) {
    attributes(directory, name);
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) status.st_mode = S_IFREG;
    static const int ways[] = {O_RDONLY, O_RDWR, O_WRONLY | O_APPEND, O_RDWR | O_DIRECT, O_RDWR | O_TRUNC, O_PATH, O_RDONLY | O_DIRECTORY, 0x7fffffff};
    for (int i = 0; i < 8; i++) {
        int fd = openat(directory, name, (ways[i] & ~O_CREAT) | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        note(fd);
        if (fd < 0) continue;
        if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) list(fd);
        seek(fd);
        control(fd);
        if (!S_ISDIR(status.st_mode)) {
            read_and_write(fd);
            if (i == 1) lock(fd);
        }
        note(fsync(fd));
        note(close(fd));
    }
}

static void make(int directory) {
    static const mode_t types[] = {0, S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFMT};
    static const dev_t devices[] = {0, 1, UINT32_MAX, UINT64_MAX, INT64_MAX};
    for (int t = 0; t < 9; t++)
        for (int d = 0; d < 5; d++) {
            // No number of a real device, which would belong to another driver.
            if ((types[t] == S_IFCHR || types[t] == S_IFBLK) && d < 2) continue;
            note(mknodat(directory, "p-plainmade", types[t] | 07777, devices[d]));
            note(unlinkat(directory, "p-plainmade", 0));
        }
    note(mkdirat(directory, "d-plainmade", UINT32_MAX));
    note(renameat2(directory, "d-plainmade", directory, "d-plainother", UINT32_MAX));
    note(renameat2(directory, "d-plainmade", directory, "d-plainother", RENAME_EXCHANGE));
    note(renameat2(directory, "d-plainmade", directory, "d-plainother", RENAME_WHITEOUT));
    note(unlinkat(directory, "d-plainmade", AT_REMOVEDIR));
    int fd = openat(directory, ".", O_TMPFILE | O_RDWR, UINT32_MAX);
    note(fd);
    if (fd >= 0) seek(fd), read_and_write(fd), close(fd);
    char name[300];
    for (int length = 250; length < 258; length++) {
        memset(name, 'n', sizeof name);
        name[length] = 0;
        fd = openat(directory, name, O_CREAT | O_RDWR, 0600);
        note(fd);
        if (fd >= 0) close(fd), unlinkat(directory, name, 0);
    }
    memset(data, 't', 5000);
    data[4095] = 0;
    note(symlinkat(data, directory, "l-plainmade"));
    note(unlinkat(directory, "l-plainmade", 0));
    note(symlinkat("", directory, "l-plainmade"));
    memset(data, 0, sizeof data);
}

static void try_directory(const char *path) {
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) attack_failed(path);
    struct statvfs space;
    note(fstatvfs(directory, &space));
    make(directory);
    DIR *stream = opendir(path);
    if (!stream) attack_failed(path);
    // The present names: names come and go.
    char names[256][256];
    int count = 0;
    for (struct dirent *entry; count < 256 && (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) snprintf(names[count++], 256, "%.255s", entry->d_name);
    closedir(stream);
    // Names to try if one bad name makes the listing fail.
    static const char *const some[] = {"f-plain", "f-control", "f-random"};
    for (int i = 0; i < 3; i++)
        if (faccessat(directory, some[i], F_OK, 0) == 0) try_name(directory, some[i]);
    for (int i = 0; i < count; i++) try_name(directory, names[i]);
    list(directory);
    close(directory);
}

int attack_numbers(int count, char **arguments) {
    attack_ready();
    for (int i = 0; i < count; i++) try_directory(arguments[i]);
    printf("%ld calls, %ld refused\n", calls, refused);
    fflush(stdout);
    return 0;
}
