#include "clinux_container.h"
#include "clinux_call.h"
#include "clinux_mount.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int clinux_copy_mount(const char *path) {
    int place = clinux_open_directory_without_links(path);
    if (place < 0) return place;
    int tree = (int)RETRY(syscall(SYS_open_tree, place, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
    close(place);
    return tree;
}

static int open_in(int root, const char *path) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)RETRY(syscall(SYS_openat2, root, path, &how, sizeof how));
}

// Opens the directory, and makes it and those above it. Each is looked up from the root again, because an image may have links.
static int make_in(int root, const char *path) {
    char *copy = strdup(path);
    if (!copy) return -ENOMEM;
    int result = open_in(root, ".");
    for (char *end = copy; result >= 0 && end;) {
        char *name = end + strspn(end, "/");
        if (!*name) break;
        end = strchr(name, '/');
        if (end) *end = 0;
        int next = open_in(root, copy);
        if (next == -ENOENT && mkdirat(result, name, 0755) == -1 && errno != EEXIST) next = -errno;
        else if (next == -ENOENT) next = open_in(root, copy);
        close(result);
        result = next;
        if (end) *end = '/';
    }
    free(copy);
    return result;
}

static int attach(int tree, int pid, const char *root, const char *path) {
    char file[40];
    snprintf(file, sizeof file, "/proc/%d/ns/mnt", pid);
    int namespace = open(file, O_RDONLY | O_CLOEXEC);
    if (namespace == -1 || setns(namespace, CLONE_NEWNS) == -1) return -errno;
    int directory = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory == -1) return -errno;
    int place = make_in(directory, path);
    if (place < 0) return place;
    return (int)RETRY(syscall(SYS_move_mount, tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int clinux_attach_mount(int tree, int pid, const char *root, const char *path) {
    pid_t child = fork();
    if (child == -1) return -errno;
    if (child == 0) _exit(-attach(tree, pid, root, path));
    int status;
    while (waitpid(child, &status, 0) == -1) {
        if (errno != EINTR) return -errno;
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}
