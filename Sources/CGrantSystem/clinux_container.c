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

static int attach(int tree, const char *root, const char *path) {
    int directory = (int)RETRY(open(root, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory < 0) return directory;
    int place = make_in(directory, path);
    close(directory);
    if (place < 0) return place;
    int result = (int)RETRY(syscall(SYS_move_mount, tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    close(place);
    return result;
}

int clinux_attach_mount(int tree, int pid, const char *root, const char *path) {
    char file[40];
    snprintf(file, sizeof file, "/proc/%d/ns/mnt", pid);
    int own = (int)RETRY(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
    if (own < 0) return own;
    int other = (int)RETRY(open(file, O_RDONLY | O_CLOEXEC)), result = other;
    if (other >= 0) result = (int)RETRY(setns(other, CLONE_NEWNS));
    if (result == 0) {
        result = attach(tree, root, path);
        // Paths would mean those of the container.
        if (setns(own, CLONE_NEWNS) == -1) abort();
    }
    if (other >= 0) close(other);
    close(own);
    return result;
}
