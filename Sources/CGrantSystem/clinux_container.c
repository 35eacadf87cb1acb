#include "clinux_container.h"
#include "clinux_call.h"
#include "clinux_mount.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// A mount that is copied or attached.
struct attachment {
    int tree;
    // /proc/PID/mountinfo of the other namespace.
    FILE *mounts;
    const char *root, *path;
};

// Calls `body` in the mount namespace of a process, and returns to the own one.
static int in_namespace(int pid, int (*body)(const struct attachment *), const struct attachment *given) {
    char file[40];
    snprintf(file, sizeof file, "/proc/%d/ns/mnt", pid);
    int own = (int)RETRY(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
    if (own < 0) return own;
    int other = (int)RETRY(open(file, O_RDONLY | O_CLOEXEC)), result = other;
    if (other >= 0) result = (int)RETRY(setns(other, CLONE_NEWNS));
    if (result == 0) {
        result = body(given);
        // Otherwise paths would be those of the other namespace.
        if (setns(own, CLONE_NEWNS) == -1) abort();
    }
    if (other >= 0) close(other);
    close(own);
    return result;
}

static int copy(const struct attachment *given) {
    struct statfs status;
    int place = clinux_open_directory_without_links(given->path);
    if (place < 0) return place;
    int tree = (int)RETRY(fstatfs(place, &status));
    // Without the mount the directory below it would be copied.
    if (tree == 0 && status.f_type != FUSE_SUPER_MAGIC) tree = -ENODEV;
    if (tree == 0) tree = (int)RETRY(syscall(SYS_open_tree, place, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
    close(place);
    return tree;
}

static int open_in(int root, const char *path) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)RETRY(syscall(SYS_openat2, root, path, &how, sizeof how));
}

// Opens the directory, and makes it and those above it. Each is looked up from the root again, because an image may have links.
static int make_in(int root, const char *path) {
    char *part = strdup(path);
    if (!part) return -ENOMEM;
    int result = open_in(root, ".");
    for (char *end = part; result >= 0 && end;) {
        char *name = end + strspn(end, "/");
        if (!*name) break;
        end = strchr(name, '/');
        if (end) *end = 0;
        int next = open_in(root, part);
        if (next == -ENOENT && mkdirat(result, name, 0755) == -1 && errno != EEXIST) next = -errno;
        else if (next == -ENOENT) next = open_in(root, part);
        close(result);
        result = next;
        if (end) *end = '/';
    }
    free(part);
    return result;
}

// Returns -EINVAL if nothing may be mounted on the directory, else 0.
//
// Files of /proc and /sys mean something to the runtime. The peers of a shared mount, which may be on the host, would get the mount too.
static int check(int place, FILE *mounts) {
    struct statfs system;
    struct statx status;
    if (fstatfs(place, &system) == -1 || statx(place, "", AT_EMPTY_PATH, STATX_MNT_ID, &status) == -1) return -errno;
    if (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC) return -EINVAL;
    if (!(status.stx_mask & STATX_MNT_ID)) return -EOPNOTSUPP;
    char *line = NULL;
    size_t size = 0;
    int result = -ENOENT;
    while (result == -ENOENT && getline(&line, &size, mounts) > 0) {
        if (strtoull(line, NULL, 10) != status.stx_mnt_id) continue;
        char *options = strstr(line, " - ");
        if (options) *options = 0;
        result = strstr(line, " shared:") ? -EINVAL : 0;
    }
    free(line);
    return result;
}

static int attach(const struct attachment *given) {
    int directory = (int)RETRY(open(given->root, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory < 0) return directory;
    int place = make_in(directory, given->path);
    close(directory);
    if (place < 0) return place;
    int result = check(place, given->mounts);
    if (result == 0)
        result = (int)RETRY(syscall(SYS_move_mount, given->tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
    close(place);
    return result;
}

int clinux_copy_mount(int pid, const char *path) { return in_namespace(pid, copy, &(struct attachment){.path = path}); }

int clinux_attach_mount(int tree, int pid, const char *root, const char *path) {
    struct stat own, other;
    char file[40];
    snprintf(file, sizeof file, "/proc/%d/ns/mnt", pid);
    if (stat("/proc/self/ns/mnt", &own) == -1 || stat(file, &other) == -1) return -errno;
    // The container's view would be mounted on the host.
    if (own.st_dev == other.st_dev && own.st_ino == other.st_ino) return -EINVAL;
    snprintf(file, sizeof file, "/proc/%d/mountinfo", pid);
    FILE *mounts = fopen(file, "re");
    if (!mounts) return -errno;
    int result = in_namespace(pid, attach, &(struct attachment){tree, mounts, root, path});
    fclose(mounts);
    return result;
}
