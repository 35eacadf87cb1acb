#include "clinux_owners.h"
#include "clinux_call.h"
#include "clinux_fs.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

// linux/stat.h. The second is of Linux 6.8.
enum { MOUNT_ID = 0x1000, MOUNT_ID_UNIQUE = 0x4000 };

// MARK: the namespace

// Waits until the other end is closed. After clone(2) in a copy of a process that may have held locks.
static int wait_for_end(void *ends) {
    char byte;
    close(((int *)ends)[1]);
    while (read(((int *)ends)[0], &byte, 1) == -1 && errno == EINTR) {}
    _exit(0);
}

static int write_map(int pid, const char *name, const char *text) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = (int)RETRY(open(path, O_WRONLY | O_CLOEXEC));
    if (fd < 0) return fd;
    // The kernel takes it in one piece.
    size_t length = strlen(text);
    ssize_t written = RETRY(write(fd, text, length));
    close(fd);
    return written < 0 ? (int)written : (size_t)written == length ? 0 : -EINVAL;
}

int clinux_owners_namespace(const char *users, const char *groups) {
    // clone(3) writes to it in this process.
    _Alignas(16) static char stack[16384];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1) return negative_errno();
    pthread_mutex_lock(&lock);
    int pid = (int)RETRY(clone(wait_for_end, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, ends));
    pthread_mutex_unlock(&lock);
    int result = pid;
    if (pid >= 0) {
        result = write_map(pid, "uid_map", users);
        if (result == 0) result = write_map(pid, "gid_map", groups);
        char path[40];
        snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
        if (result == 0) result = (int)RETRY(open(path, O_RDONLY | O_CLOEXEC));
    }
    close(ends[0]);
    close(ends[1]);
    if (pid >= 0) {
        // Another such process may have the other end.
        kill(pid, SIGKILL);
        (void)RETRY(waitpid(pid, NULL, 0));
    }
    return result;
}

// MARK: paths

struct identity { uint64_t device, inode, mount; };

static int identify(int fd, struct identity *out) {
    struct statx x;
    int result = (int)RETRY(statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_INO | MOUNT_ID, &x));
    if (result < 0) return result;
    if (!(x.stx_mask & MOUNT_ID)) return -ENOSYS;
    *out = (struct identity){makedev(x.stx_dev_major, x.stx_dev_minor), x.stx_ino, x.stx_mnt_id};
    return 0;
}

// Opens the root of the mount that a directory is on.
static int open_mount_root(int directory) {
    int current = (int)RETRY(openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    while (current >= 0) {
        struct identity own, above;
        int next = (int)RETRY(openat(current, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
        int result = next < 0 ? next : identify(current, &own);
        if (result == 0) result = identify(next, &above);
        if (result == 0 && own.mount == above.mount && (own.inode != above.inode || own.device != above.device)) {
            close(current);
            current = next;
            continue;
        }
        if (next >= 0) close(next);
        if (result == 0) return current;
        close(current);
        return result;
    }
    return current;
}

struct copied {
    // Never given again, unlike the number of a mount before Linux 6.8.
    uint64_t number;
    uint64_t mount;
    struct identity root;
    size_t length;
    struct copied *next;
    char prefix[];
};

static struct copied *all;
static pthread_rwlock_t all_lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int count;

static uint64_t mount_of(int fd) {
    struct statx x;
    int flags = AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
    if (RETRY(statx(fd, "", flags, MOUNT_ID_UNIQUE, &x)) == 0 && x.stx_mask & MOUNT_ID_UNIQUE) return x.stx_mnt_id;
    if (RETRY(statx(fd, "", flags, MOUNT_ID, &x)) == 0 && x.stx_mask & MOUNT_ID) return x.stx_mnt_id;
    return 0;
}

static void forget(uint64_t number, uint64_t mount) {
    for (struct copied **place = &all; *place; place = &(*place)->next) {
        struct copied *found = *place;
        if (found->number != number && found->mount != mount) continue;
        *place = found->next;
        free(found);
        atomic_fetch_sub(&count, 1);
        return;
    }
}

void clinux_forget_owners(uint64_t number) {
    pthread_rwlock_wrlock(&all_lock);
    forget(number, 0);
    pthread_rwlock_unlock(&all_lock);
}

uint64_t clinux_owners_number(int fd) {
    uint64_t mount = mount_of(fd), number = 0;
    pthread_rwlock_rdlock(&all_lock);
    for (struct copied *found = all; found; found = found->next)
        if (found->mount == mount) number = found->number;
    pthread_rwlock_unlock(&all_lock);
    return number;
}

int clinux_know_owners(int directory, const char *prefix, size_t length) {
    uint64_t mount = mount_of(directory);
    if (mount == 0) return -ENOSYS;
    struct identity top = {0};
    int root = open_mount_root(directory), result = root < 0 ? root : identify(root, &top);
    if (root >= 0) close(root);
    if (result < 0) return result;
    struct copied *made = malloc(sizeof *made + length);
    if (!made) return -ENOMEM;
    *made = (struct copied){.mount = mount, .root = top, .length = length};
    memcpy(made->prefix, prefix, length);
    static uint64_t last;
    pthread_rwlock_wrlock(&all_lock);
    forget(0, mount);
    made->number = ++last;
    made->next = all;
    all = made;
    atomic_fetch_add(&count, 1);
    pthread_rwlock_unlock(&all_lock);
    return 0;
}

ssize_t clinux_owners_path(int fd, char *path, ssize_t length, size_t size) {
    if (length <= 0 || atomic_load_explicit(&count, memory_order_acquire) == 0) return length;
    struct identity file;
    uint64_t mount = mount_of(fd);
    int is_top = length == 1 && *path == '/', result = is_top ? identify(fd, &file) : 0;
    if (result < 0) return result;
    pthread_rwlock_rdlock(&all_lock);
    for (struct copied *found = all; found; found = found->next) {
        if (found->mount != mount || found->length == 0) continue;
        // A file without a known name has this path as well.
        if (is_top && (file.inode != found->root.inode || file.device != found->root.device)) break;
        size_t own = is_top ? 0 : (size_t)length;
        if (found->length + own > size) {
            length = -ENAMETOOLONG;
            break;
        }
        memmove(path + found->length, path, own);
        memcpy(path, found->prefix, found->length);
        length = (ssize_t)(found->length + own);
        break;
    }
    pthread_rwlock_unlock(&all_lock);
    return length;
}

// MARK: mounts

// Opens `path`, relative to the root of the mount, on a copy of it.
static int open_on_copy(int root, const char *path, int namespace) {
    int tree = (int)RETRY(syscall(SYS_open_tree, root, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
    if (tree < 0) return tree;
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)namespace};
    int result = (int)RETRY(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
    if (result == 0) {
        struct open_how how = {
            .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
        };
        result = (int)RETRY(syscall(SYS_openat2, tree, *path ? path : ".", &how, sizeof how));
    }
    close(tree);
    return result;
}

static int open_with_owners(int directory, int root, int namespace) {
    char top[CLINUX_PATH_BYTES], path[CLINUX_PATH_BYTES + 1];
    size_t offset = 0;
    ssize_t prefix = clinux_descriptor_path(root, top, sizeof top);
    if (prefix < 0) return (int)prefix;
    if (prefix == 1) prefix = 0;
    ssize_t length = clinux_place_below(root, directory, path, &offset);
    if (length < 0) return length == -EXDEV ? -EAGAIN : (int)length;
    path[offset + (size_t)length] = 0;
    int opened = open_on_copy(root, length == 0 ? "" : path + offset, namespace);
    if (opened < 0) return opened == -ENOENT || opened == -ELOOP || opened == -EXDEV ? -EAGAIN : opened;
    struct identity own, other;
    int result = identify(directory, &own);
    if (result == 0) result = identify(opened, &other);
    // Another directory has this path by now.
    if (result == 0 && (own.device != other.device || own.inode != other.inode)) result = -EAGAIN;
    if (result == 0) result = clinux_know_owners(opened, top, (size_t)prefix);
    if (result == 0) return opened;
    close(opened);
    return result;
}

int clinux_open_with_owners(int directory, int namespace) {
    int root = open_mount_root(directory), result = root;
    for (int attempt = 0; root >= 0 && attempt < 4; attempt++) {
        result = open_with_owners(directory, root, namespace);
        if (result != -EAGAIN) break;
    }
    if (root >= 0) close(root);
    return result;
}
