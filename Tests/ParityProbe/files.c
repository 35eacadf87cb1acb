// Calls that return, duplicate and close descriptors, and that run programs with them.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// A FIFO must not make the script wait. On anything else O_NONBLOCK changes nothing.
static void call_open(char **a) {
    int directory;
    const char *path = place(a[1], &directory);
    int flags = (int)number(a[2]), fd = openat(directory, path, flags | O_NONBLOCK | O_CLOEXEC, (mode_t)number(a[3]));
    fill_slot(a[0], fd);
}

static void call_reopen(char **a) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", slot(a[1]));
    fill_slot(a[0], open(path, (int)number(a[2]) | O_NONBLOCK | O_CLOEXEC, 0666));
}

static void call_close(char **a) {
    int fd = slot(a[0]);
    say_result(close(fd));
    self.slots[a[0][0] - '0'] = -1;
}

static void call_dup(char **a) { fill_slot(a[0], fcntl(slot(a[1]), F_DUPFD_CLOEXEC, 3)); }
static void call_getfl(char **a) {
    int flags = fcntl(slot(a[0]), F_GETFL);
    say_result(flags < 0 ? -1 : flags & ~O_LARGEFILE);
}
static void call_setfl(char **a) { say_result(fcntl(slot(a[0]), F_SETFL, (int)number(a[1]) | O_NONBLOCK)); }

static int run(char *const words[], posix_spawn_file_actions_t *actions) {
    pid_t child;
    int error = posix_spawn(&child, words[0], actions, NULL, words, environ), status;
    if (error != 0) {
        errno = error;
        return -1;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// A child that inherits the descriptor moves the common position.
static void call_child(char **a) {
    int fd = slot(a[0]);
    struct stat status;
    // The child's buffer fits O_DIRECT by chance alone, and positions in directories cannot be
    // compared.
    if (fstat(fd, &status) < 0 || S_ISDIR(status.st_mode) || aligned(fd, 1) == 0) {
        say("not inherited");
        return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    char count[40];
    snprintf(count, sizeof count, "%ld", number(a[1]));
    char *words[] = {"/usr/bin/head", "-c", count, NULL};
    int ended = run(words, &actions);
    say("%d at %ld", ended, (long)lseek(fd, 0, SEEK_CUR));
    posix_spawn_file_actions_destroy(&actions);
}

// Makes a small program. Its text is written like that of any file.
static void call_program(char **a) {
    static const char text[] = "#!/bin/true\n";
    int directory;
    const char *path = place(a[0], &directory);
    int fd = openat(directory, path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0777);
    say_result(fd < 0 ? -1 : write(fd, text, sizeof text - 1));
    if (fd >= 0) say_result(close(fd));
}

static void call_exec(char **a) {
    int directory;
    char *words[] = {(char *)place(a[0], &directory), NULL};
    say_result(run(words, NULL));
}

// FUSE sends the server no request for the flags of other files (docs/conformance.md), which xfs
// has.
static bool has_no_flags(int fd) {
    struct stat status;
    bool has_none = fstat(fd, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    if (has_none) say("special");
    return has_none;
}
static void call_getflags(char **a) {
    if (has_no_flags(slot(a[0]))) return;
    int flags = 0;
    int result = ioctl(slot(a[0]), FS_IOC_GETFLAGS, &flags);
    // The flags for extents and inline data describe how ext4 stores a file. No program asked for
    // them.
    if (result < 0) say_result(-1); else say("%x", flags & (FS_APPEND_FL | FS_IMMUTABLE_FL | FS_NODUMP_FL | FS_NOATIME_FL | FS_SYNC_FL));
}
static void call_setflags(char **a) {
    if (has_no_flags(slot(a[0]))) return;
    int flags = 0;
    int result = ioctl(slot(a[0]), FS_IOC_GETFLAGS, &flags);
    flags = (flags & ~(FS_NODUMP_FL | FS_NOATIME_FL)) | (int)number(a[1]);
    say_result(result < 0 ? -1 : ioctl(slot(a[0]), FS_IOC_SETFLAGS, &flags));
}

const struct call calls_files[] = {
    {"open", 4, call_open},       {"reopen", 3, call_reopen}, {"close", 1, call_close},       {"dup", 2, call_dup},
    {"getfl", 1, call_getfl},     {"setfl", 2, call_setfl},   {"child", 2, call_child},       {"program", 1, call_program},
    {"exec", 1, call_exec},       {"getflags", 1, call_getflags}, {"setflags", 2, call_setflags}, {NULL, 0, NULL},
};
