// Calls about everything at once: the tree, and the handles that are still held when their grant is
// revoked.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void call_snap(char **a) {
    (void)a;
    snapshot(self.directory, false, true);
}
// For scripts that leave mapped pages dirty: the kernel chooses when these change a file's times.
static void call_snapdata(char **a) {
    (void)a;
    snapshot(self.directory, false, false);
}
// The data that arrived without the mount. All data in caches is written first.
static void call_hostsnap(char **a) {
    (void)a;
    if (strcmp(self.directory, self.host) != 0) {
        int fd = open(self.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || syncfs(fd) < 0) say("%s: %s", fd < 0 ? "open" : "syncfs", strerrorname_np(errno));
        if (fd >= 0) close(fd);
    }
    snapshot(self.host, true, false);
}

static void call_pause(char **a) {
    usleep((useconds_t)number(a[0]) * 1000);
    say("paused");
}

static void must_be_refused(const char *what, int which, long result) {
    if (result >= 0) say("%s of %d answers %ld;", what, which, result);
    else if (errno != EACCES) say("%s of %d gives %s;", what, which, strerrorname_np(errno));
}

static void touch_first(void *data) { self.data[0] = *(volatile char *)((struct mapping *)data)->at; }

// After a revocation: the result of each held handle, if it is not EACCES (SIGBUS for mappings). Only the kernel reads
// FIFOs and devices, so of those only the attributes that the mount shows count.
static void call_held(char **a) {
    (void)a;
    struct stat status;
    char byte = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < SLOTS; i++) {
        int fd = self.slots[i], flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
        if (fd < 0) continue;
        must_be_refused("fstat", i, fstat(fd, &status));
        must_be_refused("statx", i, syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_ALL, self.data));
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_DIRECTORY);
        if (again >= 0) must_be_refused("opening again", i, again);
        if (again >= 0) close(again);
        if (flags & O_PATH) continue;
        if ((flags & O_TMPFILE) == O_DIRECTORY) {
            lseek(fd, 0, SEEK_SET);
            // For a removed directory the kernel returns the error without a request (fs/readdir.c,
            // iterate_dir).
            long listed = syscall(SYS_getdents64, fd, self.data, 4096);
            if (listed >= 0 || errno != ENOENT) must_be_refused("getdents", i, listed);
            must_be_refused("openat", i, openat(fd, "f0", O_RDONLY | O_CLOEXEC));
            continue;
        }
        if (ftruncate(fd, 1) < 0 && errno == EINVAL) continue;
        if ((flags & O_ACCMODE) != O_WRONLY) must_be_refused("pread", i, pread(fd, self.data, 4096, 0));
        if ((flags & O_ACCMODE) != O_RDONLY) must_be_refused("pwrite", i, pwrite(fd, flags & O_DIRECT ? self.data : &byte, flags & O_DIRECT ? 4096 : 1, 0));
    }
    for (int i = 0; i < MAPS; i++) {
        struct mapping *map = &self.maps[i];
        if (map->at == NULL || (map->is_private && map->was_written)) continue;
            if (survives(touch_first, map)) say("map %d can be read;", i);
    }
    must_be_refused("stat of the working directory", 0, stat(".", &status));
    must_be_refused("stat of the directory", 0, stat(self.directory, &status));
    say("tried");
}

// Closing and unmapping never fail.
static void call_letgo(char **a) {
    (void)a;
    for (int i = 0; i < SLOTS; i++)
        if (self.slots[i] >= 0 && close(self.slots[i]) < 0) say("close of %d gives %s;", i, strerrorname_np(errno));
    for (int i = 0; i < MAPS; i++)
        if (self.maps[i].at != NULL && munmap(self.maps[i].at, self.maps[i].length) < 0) say("munmap of %d gives %s;", i, strerrorname_np(errno));
    say("done");
}

const struct call calls_whole[] = {
    {"snap", 0, call_snap}, {"snapdata", 0, call_snapdata}, {"hostsnap", 0, call_hostsnap}, {"pause", 1, call_pause}, {"held", 0, call_held}, {"letgo", 0, call_letgo}, {NULL, 0, NULL},
};
