#include "CGrantSystem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fanotify.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

bool clinux_openings_are_counted_first(void) {
    struct utsname name;
    int major = 0, minor = 0;
    if (uname(&name) == -1 || sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
    return major > 6 || (major == 6 && minor >= 1);
}

int clinux_openings_wakeup_open(void) {
    int wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wakeup == -1 ? -errno : wakeup;
}

void clinux_openings_wakeup(int wakeup) {
    uint64_t one = 1;
    // Fails only after 2^64 - 2 signals that were not read.
    if (write(wakeup, &one, sizeof one) == -1) return;
}

// Fills closed standard numbers: otherwise the runtime's output could become a reply to the kernel.
static int fill_standard_numbers(void) {
    for (;;) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd == -1) return -errno;
        if (fd <= 2) continue;
        close(fd);
        return 0;
    }
}

int clinux_openings_begin(int wakeup) {
    if (wakeup <= 2) return -EBADF;
    if (unshare(CLONE_FILES) == -1) return -errno;
    if (syscall(SYS_close_range, 0, wakeup - 1, 0) == -1 || syscall(SYS_close_range, wakeup + 1, UINT_MAX, 0) == -1) return -errno;
    int result = fill_standard_numbers();
    if (result < 0) return result;
    unsigned flags = FAN_CLASS_CONTENT | FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_UNLIMITED_MARKS;
    long group = syscall(SYS_fanotify_init, flags, O_RDONLY | O_LARGEFILE | O_CLOEXEC);
    return group < 0 ? -errno : (int)group;
}

long clinux_openings_room(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == -1) return 0;
    return limit.rlim_cur > LONG_MAX ? LONG_MAX : (long)limit.rlim_cur;
}

static int change_mark(int group, unsigned flags, int path) {
    char name[48];
    // fanotify_mark(2) takes no O_PATH descriptor by itself.
    snprintf(name, sizeof name, "/proc/thread-self/fd/%d", path);
    return syscall(SYS_fanotify_mark, group, flags, (uint64_t)FAN_OPEN_PERM, AT_FDCWD, name) == -1 ? -errno : 0;
}

int clinux_openings_mark(int group, int fd) {
    char name[32];
    // The descriptors of the process's first thread, which has the common table.
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int path = open(name, O_PATH | O_CLOEXEC);
    if (path == -1) return -errno;
    int result = change_mark(group, FAN_MARK_ADD, path);
    if (result == 0) return path;
    close(path);
    return result;
}

void clinux_openings_unmark(int group, int path) {
    change_mark(group, FAN_MARK_REMOVE, path);
    close(path);
}

void clinux_openings_wait(int group, int wakeup, int milliseconds, bool looks) {
    struct pollfd list[2] = {{wakeup, POLLIN, 0}, {group, POLLIN, 0}};
    if (poll(list, looks ? 2 : 1, milliseconds) <= 0) return;
    uint64_t count;
    if (list[0].revents != 0 && read(wakeup, &count, sizeof count) == -1) return;
}

bool clinux_openings_next(int group, pid_t *process, int *fd) {
    // Room for one: each comes with a descriptor.
    struct fanotify_event_metadata event;
    for (int tries = 0; tries < 64; tries++) {
        ssize_t length = read(group, &event, sizeof event);
        // Other errors concern one event, which the kernel has answered then.
        if (length == -1 && errno != EAGAIN) continue;
        if (length < (ssize_t)sizeof event) return false;
        if (event.fd < 0) continue;
        *process = event.pid;
        *fd = event.fd;
        return true;
    }
    return false;
}

void clinux_openings_allow(int group, int fd) {
    struct fanotify_response response = {fd, FAN_ALLOW};
    // Fails if the waiting process was killed.
    if (write(group, &response, sizeof response) == -1) errno = 0;
    close(fd);
}

bool clinux_is_sole_opening(int fd) {
    // If the lease is broken in this moment, the signal is one that is ignored by default.
    if (fcntl(fd, F_SETSIG, SIGURG) == -1 || fcntl(fd, F_SETLEASE, F_WRLCK) == -1) return false;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

bool clinux_is_on_own_disk(int fd) {
    struct statfs status;
    if (fstatfs(fd, &status) == -1) return false;
    switch ((unsigned long)status.f_type) {
    case EXT4_SUPER_MAGIC: // also ext2 and ext3
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC: return true;
    // Not overlayfs: a file mapped through it is another inode, whose openers are not counted here.
    default: return false;
    }
}
