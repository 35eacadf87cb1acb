#include "table.h"
#include <dirent.h>
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

static int mode_plain(const char *path) { return TRY(chmod(path, 0640)); }
static int mode_set_id(const char *path) { return TRY(chmod(path, 06755)); }
static int mode_sticky(const char *path) { return TRY(chmod(path, 01777)); }
static int mode_of_link(const char *path) { return TRY(fchmodat(AT_FDCWD, path, 0600, AT_SYMLINK_NOFOLLOW)); }
static int owner_root(const char *path) { return TRY(chown(path, 0, 0)); }
static int owner_user(const char *path) { return TRY(chown(path, USER, USER)); }
static int owner_same(const char *path) { return TRY(chown(path, (uid_t)-1, (gid_t)-1)); }
static int owner_group(const char *path) { return TRY(chown(path, (uid_t)-1, GROUP)); }
static int owner_of_link(const char *path) { return TRY(lchown(path, USER, GROUP)); }
static int cut(const char *path) { return TRY(truncate(path, 3)); }
static int extend(const char *path) { return TRY(truncate(path, 100000)); }
static int cut_negative(const char *path) { return TRY(truncate(path, -1)); }
static int cut_huge(const char *path) { return TRY(truncate(path, INT64_MAX)); }
static int time_now(const char *path) { return TRY(utimensat(AT_FDCWD, path, NULL, 0)); }
static int times(const char *path, long access, long change, int flags) {
    struct timespec both[] = {{1000000000, access}, {1000000001, change}};
    if (utimensat(AT_FDCWD, path, both, flags)) return errno;
    struct stat status;
    if (change != UTIME_NOW && change != UTIME_OMIT && fstatat(AT_FDCWD, path, &status, flags) == 0)
        snprintf(detail, sizeof detail, "mtime %lld.%09ld", (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    return 0;
}
static int time_given(const char *path) { return times(path, 5, 987654321, 0); }
static int time_of_link(const char *path) { return times(path, 5, 123456789, AT_SYMLINK_NOFOLLOW); }
static int time_half(const char *path) { return times(path, UTIME_OMIT, UTIME_NOW, 0); }
static int time_neither(const char *path) { return times(path, UTIME_OMIT, UTIME_OMIT, 0); }
static int time_both_now(const char *path) { return times(path, UTIME_NOW, UTIME_NOW, 0); }
static int time_wrong(const char *path) { return times(path, 0, 2000000000, 0); }
static int set_attribute(const char *path) { return TRY(setxattr(path, "user.new", "value", 5, 0)); }
static int replace_attribute(const char *path) { return TRY(setxattr(path, "user.a", "other", 5, XATTR_REPLACE)); }
static int create_attribute(const char *path) { return TRY(setxattr(path, "user.a", "other", 5, XATTR_CREATE)); }
static int remove_attribute(const char *path) { return TRY(removexattr(path, "user.a")); }
static int set_on_link(const char *path) { return TRY(lsetxattr(path, "user.new", "value", 5, 0)); }
static int odd_attribute(const char *path) { return TRY(setxattr(path, "odd.name", "value", 5, 0)); }
static int large_attribute(const char *path) {
    static char value[70000];
    return TRY(setxattr(path, "user.large", value, sizeof value, 0));
}

const struct call attribute_calls[] = {
    {"chmod 640", mode_plain, true}, {"chmod 6755", mode_set_id, true}, {"chmod 1777", mode_sticky, true},
    {"fchmodat AT_SYMLINK_NOFOLLOW", mode_of_link, true},
    {"chown root", owner_root, true}, {"chown user", owner_user, true}, {"chown -1 -1", owner_same, true}, {"chgrp", owner_group, true},
    {"lchown", owner_of_link, true}, {"truncate", cut, true}, {"truncate longer", extend, true}, {"truncate -1", cut_negative, true},
    {"truncate huge", cut_huge, true}, {"utimensat NULL", time_now, true}, {"utimensat", time_given, true},
    {"utimensat AT_SYMLINK_NOFOLLOW", time_of_link, true}, {"utimensat OMIT, NOW", time_half, true},
    {"utimensat OMIT, OMIT", time_neither, true},
    {"utimensat NOW, NOW", time_both_now, true}, {"utimensat with too many nanoseconds", time_wrong, true},
    {"setxattr", set_attribute, true},
    {"setxattr XATTR_REPLACE", replace_attribute, true}, {"setxattr XATTR_CREATE", create_attribute, true},
    {"removexattr", remove_attribute, true},
    {"lsetxattr", set_on_link, true}, {"setxattr of no namespace", odd_attribute, true},
    {"setxattr of 70000 bytes", large_attribute, true},
    {NULL, NULL, false},
};

static int describe(int result, const struct stat *status) {
    if (result) return errno;
    snprintf(detail, sizeof detail, "mode %o uid %u gid %u links %lu size %lld rdev %lx", status->st_mode, status->st_uid, status->st_gid,
        (unsigned long)status->st_nlink, S_ISDIR(status->st_mode) ? 0 : (long long)status->st_size, (unsigned long)status->st_rdev);
    return 0;
}
static int look(const char *path) {
    struct stat status;
    return describe(stat(path, &status), &status);
}
static int look_at_link(const char *path) {
    struct stat status;
    return describe(lstat(path, &status), &status);
}
static int look_at_filesystem(const char *path) {
    struct statfs status;
    if (statfs(path, &status)) return errno;
    snprintf(detail, sizeof detail, "names %ld block %ld", (long)status.f_namelen, (long)status.f_bsize);
    return 0;
}
static int exists(const char *path) { return TRY(access(path, F_OK)); }
static int readable(const char *path) { return TRY(access(path, R_OK)); }
static int writable(const char *path) { return TRY(access(path, W_OK)); }
static int runnable(const char *path) { return TRY(faccessat(AT_FDCWD, path, X_OK, AT_EACCESS)); }
static int everything(const char *path) { return TRY(faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS)); }
static int text(const char *path) {
    char buffer[64] = "";
    ssize_t length = readlink(path, buffer, sizeof buffer - 1);
    if (length < 0) return errno;
    snprintf(detail, sizeof detail, "%s", buffer);
    return 0;
}
static int short_text(const char *path) {
    char buffer[2];
    ssize_t length = readlink(path, buffer, sizeof buffer);
    if (length < 0) return errno;
    snprintf(detail, sizeof detail, "%zd", length);
    return 0;
}
static int change_to(const char *path) {
    int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int result = TRY(chdir(path));
    if (back < 0 || fchdir(back)) fail("fchdir");
    close(back);
    return result;
}
static int list(const char *path) {
    // opendir(3) inspects the path itself.
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) return errno;
    int count = 0;
    errno = 0;
    while (readdir(stream)) count++;
    int result = errno;
    closedir(stream);
    snprintf(detail, sizeof detail, "%d", count);
    return result;
}
static int get_attribute(const char *path) {
    char value[16];
    ssize_t length = getxattr(path, "user.a", value, sizeof value);
    if (length < 0) return errno;
    snprintf(detail, sizeof detail, "%zd, asked for the size %zd, with one byte %d", length, getxattr(path, "user.a", NULL, 0),
        TRY(getxattr(path, "user.a", value, 1)));
    return 0;
}
static int list_attributes(const char *path) {
    char names[256];
    ssize_t length = llistxattr(path, names, sizeof names);
    if (length < 0) return errno;
    snprintf(detail, sizeof detail, "%zd", length);
    return 0;
}
static int watch(const char *path) {
    int fd = inotify_init1(IN_CLOEXEC);
    int result = TRY(inotify_add_watch(fd, path, IN_ALL_EVENTS));
    close(fd);
    return result;
}

const struct call looking_calls[] = {
    {"stat", look, false}, {"lstat", look_at_link, false}, {"statfs", look_at_filesystem, false}, {"access F_OK", exists, false},
    {"access R_OK", readable, false}, {"access W_OK", writable, false}, {"faccessat X_OK", runnable, false},
    {"faccessat all", everything, false},
    {"readlink", text, false}, {"readlink, two bytes", short_text, false}, {"chdir", change_to, false}, {"readdir", list, false},
    {"getxattr", get_attribute, false}, {"listxattr", list_attributes, false}, {"inotify_add_watch", watch, false}, {NULL, NULL, false},
};
