// Calls that make, move and remove names.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void call_mkdir(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_result(mkdirat(directory, path, (mode_t)number(a[1])));
}
// The device is MAJOR * 256 + MINOR.
static void call_mknod(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    long device = number(a[2]);
    say_result(mknodat(directory, path, (mode_t)number(a[1]), makedev((unsigned)device >> 8, (unsigned)device & 255)));
}
static void call_symlink(char **a) {
    int directory;
    const char *path = place(a[1], &directory);
    int unused;
    // An absolute text would differ between the two runs. The kernel follows a relative one in the
    // same way.
    say_result(symlinkat(place(a[0][0] == '/' ? a[0] + 1 : a[0], &unused), directory, path));
}
static void call_readlink(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    ssize_t count = readlinkat(directory, path, self.data, (size_t)number(a[1]));
    say_result(count);
    if (count > 0) say("%08x", hash(self.data, (size_t)count, 1));
}
static void call_unlink(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_result(unlinkat(directory, path, 0));
}
static void call_rmdir(char **a) {
    int directory;
    const char *path = place(a[0], &directory);
    say_result(unlinkat(directory, path, AT_REMOVEDIR));
}
static void call_rename(char **a) {
    int from_directory, to_directory;
    const char *from = place(a[0], &from_directory), *to = place(a[1], &to_directory);
    say_result(renameat2(from_directory, from, to_directory, to, (unsigned)number(a[2])));
}
// The third argument: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH or 0.
static void call_link(char **a) {
    int from_directory, to_directory;
    const char *from = place(a[0], &from_directory), *to = place(a[1], &to_directory);
    say_result(linkat(from_directory, from, to_directory, to, (int)number(a[2])));
}
static void call_linkproc(char **a) {
    char from[40];
    int directory;
    const char *to = place(a[1], &directory);
    snprintf(from, sizeof from, "/proc/self/fd/%d", slot(a[0]));
    say_result(linkat(AT_FDCWD, from, directory, to, AT_SYMLINK_FOLLOW));
}
static void call_chdir(char **a) {
    int directory;
    say_result(chdir(place(a[0], &directory)));
}
static void call_fchdir(char **a) { say_result(fchdir(slot(a[0]))); }
static void call_getcwd(char **a) {
    (void)a;
    size_t length = strlen(self.directory);
    // The raw call reports a removed directory in the same way for both.
    long count = syscall(SYS_getcwd, self.data, (size_t)DATA_LIMIT);
    if (count < 0) say_result(-1); else say("%s.", strncmp(self.data, self.directory, length) == 0 ? self.data + length : self.data);
}
static void call_umask(char **a) { say_result(umask((mode_t)number(a[0]))); }

const struct call calls_names[] = {
    {"mkdir", 2, call_mkdir},   {"mknod", 3, call_mknod}, {"symlink", 2, call_symlink}, {"readlink", 2, call_readlink},
    {"unlink", 1, call_unlink}, {"rmdir", 1, call_rmdir}, {"rename", 3, call_rename},   {"link", 3, call_link},
    {"linkproc", 2, call_linkproc}, {"chdir", 1, call_chdir}, {"fchdir", 1, call_fchdir}, {"getcwd", 0, call_getcwd},
    {"umask", 1, call_umask},   {NULL, 0, NULL},
};
