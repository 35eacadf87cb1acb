// Calls that show and change modes, owners, times, limits.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void say_time(const char *label, struct timespec time) {
    if (time.tv_sec < 1600000000) say("%s=%ld.%09ld", label, (long)time.tv_sec, time.tv_nsec); else say("%s=now", label);
}

// The attributes that can be compared between two directories: neither the numbers of device and
// inode, nor times of now.
void say_attributes(const struct stat *status, bool with_times) {
    say("%o %u:%u links=%lu size=%ld", status->st_mode, status->st_uid, status->st_gid, (unsigned long)status->st_nlink,
        (long)status->st_size);
    if (S_ISCHR(status->st_mode) || S_ISBLK(status->st_mode)) say("dev=%u,%u", major(status->st_rdev), minor(status->st_rdev));
    if (with_times) say_time("m", status->st_mtim);
}

static void call_stat(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    struct stat status;
    if (fstatat(directory, path, &status, (int)number(a[1])) < 0) say_result(-1); else say_attributes(&status, true);
}
static void call_fstat(char **a) {
    struct stat status;
    if (fstat(slot(a[0]), &status) < 0) say_result(-1); else say_attributes(&status, true);
}
static void call_statx(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    struct statx status;
    if (statx(directory, path, (int)number(a[1]), STATX_BASIC_STATS, &status) < 0) {
        say_result(-1);
        return;
    }
    say("%o %u:%u links=%u size=%llu block=%u mask=%x", status.stx_mode, status.stx_uid, status.stx_gid, status.stx_nlink,
        (unsigned long long)status.stx_size, status.stx_blksize, status.stx_mask & STATX_BASIC_STATS);
}
// The raw call, because the C library decides some cases itself.
static void call_access(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_result(syscall(SYS_faccessat2, directory, path, (int)number(a[1]), (int)number(a[2])));
}
static void call_chmod(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_result(fchmodat(directory, path, (mode_t)number(a[1]), 0));
}
static void call_fchmod(char **a) { say_result(fchmod(slot(a[0]), (mode_t)number(a[1]))); }
// chown(2) to the same owner and group by a user who may not clear the set-id bits. While any process has the file open
// for writing, which a script cannot know, it succeeds through a mount and clears none (docs/conformance.md).
static void say_chown(int result, char **owners) {
    bool changes_nothing = number(owners[0]) == -1 && number(owners[1]) == -1;
    say_result(changes_nothing && result < 0 && errno == EPERM ? 0 : result);
}
static void call_chown(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_chown(fchownat(directory, path, (uid_t)number(a[1]), (gid_t)number(a[2]), (int)number(a[3])), a + 1);
}
static void call_fchown(char **a) { say_chown(fchown(slot(a[0]), (uid_t)number(a[1]), (gid_t)number(a[2])), a + 1); }

static struct timespec time_of(const char *text) {
    if (strcmp(text, "now") == 0) return (struct timespec){0, UTIME_NOW};
    if (strcmp(text, "omit") == 0) return (struct timespec){0, UTIME_OMIT};
    const char *fraction = strchr(text, '.');
    return (struct timespec){number(text), fraction == NULL ? 0 : number(fraction + 1)};
}
static void call_utimens(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    struct timespec times[2] = {time_of(a[1]), time_of(a[2])};
    say_result(utimensat(directory, path, times, (int)number(a[3])));
}
static void call_futimens(char **a) {
    struct timespec times[2] = {time_of(a[1]), time_of(a[2])};
    say_result(futimens(slot(a[0]), times));
}
// Prints the access time too, right after it was set. Reads change it at the filesystem's own
// discretion.
static void call_times(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    struct timespec times[2] = {time_of(a[1]), time_of(a[2])};
    int result = utimensat(directory, path, times, 0);
    struct stat status;
    say_result(result);
    if (result < 0 || fstatat(directory, path, &status, 0) < 0) return;
    say_time("a", status.st_atim);
    say_time("m", status.st_mtim);
}

// Free space changes with other programs, so only the fixed values of the filesystem are compared.
static void call_statfs(char **a) {
    int directory;
    struct statvfs status;
    if (statvfs(place(a[0], &directory), &status) < 0) say_result(-1);
    else say("block=%lu,%lu name=%lu blocks=%lu", status.f_bsize, status.f_frsize, status.f_namemax, (unsigned long)status.f_blocks);
}
static void call_fsize(char **a) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = number(a[0]) < 0 ? limit.rlim_max : (rlim_t)number(a[0]);
    say_result(setrlimit(RLIMIT_FSIZE, &limit));
}

const struct call calls_attributes[] = {
    {"stat", 2, call_stat},       {"fstat", 1, call_fstat},     {"statx", 2, call_statx},       {"access", 3, call_access},
    {"chmod", 2, call_chmod},     {"fchmod", 2, call_fchmod},   {"chown", 4, call_chown},       {"fchown", 3, call_fchown},
    {"utimens", 4, call_utimens}, {"times", 3, call_times},     {"futimens", 3, call_futimens}, {"statfs", 1, call_statfs},
    {"fsize", 1, call_fsize},     {NULL, 0, NULL},
};
