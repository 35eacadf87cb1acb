// The whole tree on one line, so that two of them can be compared.
#include "parity.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { SEEN = 2048, DEPTH = 24 };

// The former state: a time that the script did not set is compared by whether it changed meanwhile.
// The descriptor keeps the inode's number in use, so that the same number is the same file.
struct seen {
    char path[512];
    ino_t inode;
    int fd;
    struct timespec modified, changed;
};
struct generation {
    struct seen files[SEEN];
    size_t count;
};
static struct generation generations[4], *before, *now;
static size_t root_length;
static bool with_changes;

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static bool differs(struct timespec a, struct timespec b) { return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec; }

static void say_changes(const char *path, const char *full, const struct stat *status) {
    const struct seen *old = NULL;
    const char *first = NULL;
    for (size_t i = 0; i < before->count && old == NULL; i++)
        if (strcmp(before->files[i].path, path) == 0) old = &before->files[i];
    if (status->st_nlink > 1 && !S_ISDIR(status->st_mode))
        for (size_t i = 0; i < now->count && first == NULL; i++)
            if (now->files[i].inode == status->st_ino) first = now->files[i].path;
    if (first != NULL) say("is=%s", first);
    // A FIFO's times change when it is used, if the filesystem leaves the times to the kernel
    // (fs/pipe.c, S_NOCMTIME).
    if (old != NULL && old->inode == status->st_ino && with_changes && !S_ISFIFO(status->st_mode)) {
        if (differs(old->modified, status->st_mtim)) say("m+");
        if (differs(old->changed, status->st_ctim)) say("c+");
    }
    if (now->count == SEEN) return;
    struct seen *seen = &now->files[now->count++];
    snprintf(seen->path, sizeof seen->path, "%s", path);
    seen->inode = status->st_ino;
    seen->fd = open(full, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    seen->modified = status->st_mtim;
    seen->changed = status->st_ctim;
}

static void say_attributes_of(const char *path, bool with_security) {
    static char names[65536];
    char *sorted[256];
    size_t count = 0;
    ssize_t size = llistxattr(path, names, sizeof names);
    if (size < 0) {
        if (errno != EOPNOTSUPP) say("xattrs=%s", strerrorname_np(errno));
        return;
    }
    for (char *name = names; name < names + size && count < 256; name += strlen(name) + 1)
        if (contract_shows(name) || (with_security && strcmp(name, "security.capability") == 0)) sorted[count++] = name;
    qsort(sorted, count, sizeof sorted[0], compare_names);
    for (size_t i = 0; i < count; i++) {
        ssize_t length = lgetxattr(path, sorted[i], self.data, 65536);
        if (length < 0) say("%s=%s", sorted[i], strerrorname_np(errno)); else say("%s=%08x", sorted[i], hash(self.data, (size_t)length, 5));
    }
}

// The beginning and the end of long files, because scripts make sparse files of many gigabytes.
static void say_contents(const char *path, off_t size) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t head = fd < 0 ? -1 : pread(fd, self.data, DATA_LIMIT, 0);
    unsigned sum = head < 0 ? 0 : hash(self.data, (size_t)head, 2166136261u);
    if (head >= 0 && size > DATA_LIMIT) {
        ssize_t tail = pread(fd, self.data, 65536, size - 65536);
        if (tail > 0) sum = hash(self.data, (size_t)tail, sum);
    }
    if (head < 0) say("data=%s", strerrorname_np(errno)); else say("data=%08x", sum);
    if (fd >= 0) close(fd);
}

static void walk(const char *path, int depth, bool with_security) {
    struct stat status;
    const char *shown = path + root_length;
    say(";");
    if (lstat(path, &status) < 0) {
        say(".%s %s", shown, strerrorname_np(errno));
        return;
    }
    say(".%s", shown);
    say_attributes(&status, with_changes);
    say_changes(shown, path, &status);
    say_attributes_of(path, with_security);
    if (S_ISLNK(status.st_mode)) {
        ssize_t count = readlink(path, self.data, 8192);
        if (count < 0) say("%s", strerrorname_np(errno)); else say("->%08x", hash(self.data, (size_t)count, 1));
    }
    if (S_ISREG(status.st_mode)) say_contents(path, status.st_size);
    if (!S_ISDIR(status.st_mode) || depth == DEPTH) return;
    DIR *directory = opendir(path);
    char *names[1024];
    size_t count = 0;
    if (directory == NULL) {
        say("%s", strerrorname_np(errno));
        return;
    }
    for (struct dirent *entry; count < 1024 && (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) names[count++] = strdup(entry->d_name);
    closedir(directory);
    qsort(names, count, sizeof names[0], compare_names);
    for (size_t i = 0; i < count; i++) {
        char *below;
        if (asprintf(&below, "%s/%s", path, names[i]) < 0) exit(5);
        if (strlen(below) < 4000) walk(below, depth + 1, with_security);
        free(below);
        free(names[i]);
    }
}

// Waits until the coarse clock has passed the present fine time. Otherwise a change right after the
// inspection would have the same time.
// A new value of the coarse clock is not enough. With multigrain timestamps
// (kernel/time/timekeeping.c) the times of a new file can be later than the next tick. The next
// change then gets the same times, even by the coarse clock alone.
static void wait_for_the_clock(void) {
    struct timespec start, time;
    clock_gettime(CLOCK_REALTIME, &start);
    do {
        usleep(500);
        clock_gettime(CLOCK_REALTIME_COARSE, &time);
    } while (time.tv_sec < start.tv_sec || (time.tv_sec == start.tv_sec && time.tv_nsec <= start.tv_nsec));
}

void snapshot(const char *directory, bool with_security, bool with_times) {
    static int turn;
    struct generation *pair = generations + (with_security ? 2 : 0);
    before = pair + (turn & 1);
    now = pair + (~turn & 1);
    now->count = 0;
    turn++;
    root_length = strlen(directory);
    with_changes = with_times;
    walk(directory, 0, with_security);
    for (size_t i = 0; i < before->count; i++) close(before->files[i].fd);
    before->count = 0;
    wait_for_the_clock();
}
