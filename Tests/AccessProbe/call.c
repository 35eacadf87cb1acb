// call NAME ARGUMENT…: makes one system call and prints the name of its errno. Shell tools hide
// some calls behind fallbacks.
#include "probe.h"
#include <sys/statfs.h>
#include <sys/xattr.h>

// Opens a file for writing and writes a byte. With write-back the error comes with the byte, or
// with the end.
static int write_byte(const char *path, int flags) {
    int fd = open(path, O_WRONLY | O_APPEND | flags);
    if (fd < 0) return errno;
    int result = RESULT(write(fd, "x", 1));
    if (result == 0) result = RESULT(fsync(fd));
    close(fd);
    return result;
}

// Makes a file without a name in a directory, and then names it.
static int name_nameless(const char *directory, const char *path) {
    char place[32];
    int fd = open(directory, O_TMPFILE | O_RDWR, 0644);
    if (fd < 0) return errno;
    snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
    int result = RESULT(linkat(AT_FDCWD, place, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
    close(fd);
    return result;
}

static int call(const char *name, char **a, int count) {
    char bytes[PAGE];
    struct stat st;
    if (count == 2) {
        if (!strcmp(name, "rename")) return RESULT(rename(a[0], a[1]));
        if (!strcmp(name, "exchange")) return RESULT(renameat2(AT_FDCWD, a[0], AT_FDCWD, a[1], RENAME_EXCHANGE));
        if (!strcmp(name, "noreplace")) return RESULT(renameat2(AT_FDCWD, a[0], AT_FDCWD, a[1], RENAME_NOREPLACE));
        if (!strcmp(name, "link")) return RESULT(link(a[0], a[1]));
        if (!strcmp(name, "symlink")) return RESULT(symlink(a[0], a[1]));
        if (!strcmp(name, "setxattr")) return RESULT(lsetxattr(a[0], a[1], "value", 5, 0));
        if (!strcmp(name, "getxattr")) return RESULT(lgetxattr(a[0], a[1], bytes, sizeof bytes));
        if (!strcmp(name, "removexattr")) return RESULT(lremovexattr(a[0], a[1]));
        if (!strcmp(name, "name-nameless")) return name_nameless(a[0], a[1]);
        if (!strcmp(name, "chmod")) return RESULT(chmod(a[0], (mode_t)strtol(a[1], NULL, 8)));
    }
    if (count == 1) {
        if (!strcmp(name, "stat")) return RESULT(lstat(a[0], &st));
        if (!strcmp(name, "unlink")) return RESULT(unlink(a[0]));
        if (!strcmp(name, "rmdir")) return RESULT(rmdir(a[0]));
        if (!strcmp(name, "mkdir")) return RESULT(mkdir(a[0], 0755));
        if (!strcmp(name, "mkfifo")) return RESULT(mkfifo(a[0], 0644));
        if (!strcmp(name, "mknod-device")) return RESULT(mknod(a[0], S_IFCHR | 0666, 0x103));
        if (!strcmp(name, "truncate")) return RESULT(truncate(a[0], 0));
        if (!strcmp(name, "utimens")) return RESULT(utimensat(AT_FDCWD, a[0], NULL, 0));
        if (!strcmp(name, "create")) return RESULT(open(a[0], O_CREAT | O_EXCL | O_WRONLY, 0644));
        if (!strcmp(name, "open")) return RESULT(open(a[0], O_RDONLY | O_NONBLOCK));
        if (!strcmp(name, "open-for-writing")) return RESULT(open(a[0], O_WRONLY | O_NONBLOCK));
        if (!strcmp(name, "write")) return write_byte(a[0], 0);
        if (!strcmp(name, "write-truncated")) return write_byte(a[0], O_TRUNC);
        if (!strcmp(name, "chown")) return RESULT(lchown(a[0], 0, 0));
        if (!strcmp(name, "access")) return RESULT(access(a[0], F_OK));
        if (!strcmp(name, "chdir")) return RESULT(chdir(a[0]));
        if (!strcmp(name, "statfs")) return RESULT(statfs(a[0], &(struct statfs){0}));
        if (!strcmp(name, "readlink")) return RESULT(readlink(a[0], bytes, sizeof bytes));
        if (!strcmp(name, "nameless")) return RESULT(open(a[0], O_TMPFILE | O_RDWR, 0644));
        if (!strcmp(name, "list")) return RESULT(open(a[0], O_RDONLY | O_DIRECTORY));
    }
    fprintf(stderr, "access-probe: no call %s with %d arguments\n", name, count);
    exit(2);
}

int run_call(int count, char **arguments) {
    puts(result_name(call(arguments[0], arguments + 1, count - 1)));
    return 0;
}
