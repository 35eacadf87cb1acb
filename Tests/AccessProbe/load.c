// Threads that use a directory in every way at once, while a test revokes and restores it. Standard
// input steers them. “revoked” and “granted” set the rule for the operations that begin and end
// afterwards, and each is answered with “ok”. “stop” ends the program, which prints one JSON line
// for each thread.
#include "probe.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

static _Atomic unsigned epoch;  // odd while revoked
static _Atomic bool stopping;
// Daemons die meanwhile. An operation that must not be repeated, and may have been done, then fails
// with EIO.
static bool daemons_die;

struct worker {
    const char *name;
    int (*operation)(struct probe *, struct worker *);
    struct probe *probe;
    const char *file;  // held open or mapped, opened again after each restore
    int flags;
    bool mapped;
    int fd;
    unsigned char *map;
    int number;
    uint64_t succeeded, failed_while_revoked, failed_while_granted, leaked, odd, interrupted, longest;
    int last_error, granted_error, odd_error;
    pthread_t thread;
};

static unsigned char page_pattern[PAGE];

static int op_open(struct probe *p, struct worker *w) {
    (void)w;
    unsigned char bytes[64];
    int fd = open(in(p, "read"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = check_pattern(bytes, read(fd, bytes, sizeof bytes), 0);
    close(fd);
    return result;
}
static int op_held_read(struct probe *p, struct worker *w) {
    (void)p;
    unsigned char bytes[PAGE];
    return check_pattern(bytes, pread(w->fd, bytes, sizeof bytes, 0), 0);
}
static int op_held_write(struct probe *p, struct worker *w) {
    (void)p;
    return RESULT(pwrite(w->fd, page_pattern, sizeof page_pattern, 0));
}
static int op_fresh_write(struct probe *p, struct worker *w) {
    (void)w;
    int fd = open(in(p, "rdwr"), O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = RESULT(pwrite(fd, page_pattern, sizeof page_pattern, 0));
    close(fd);
    return result;
}
static int op_held_map(struct probe *p, struct worker *w) {
    (void)p;
    return touch(w->map, (w->succeeded % (FILE_SIZE / PAGE)) * PAGE);
}
static int op_held_store(struct probe *p, struct worker *w) {
    (void)p;
    return store(w->map, (w->succeeded % (FILE_SIZE / PAGE)) * PAGE);
}
static int op_fresh_map(struct probe *p, struct worker *w) {
    (void)w;
    int fd = open(in(p, "map"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    unsigned char *address = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (address == MAP_FAILED) return errno;
    int result = touch(address, 0);
    munmap(address, FILE_SIZE);
    return result;
}
static int op_list(struct probe *p, struct worker *w) {
    (void)w;
    char bytes[8192];
    int fd = open(in(p, "listed"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = RESULT(getdents64(fd, bytes, sizeof bytes));
    close(fd);
    return result;
}
static int op_stat(struct probe *p, struct worker *w) {
    (void)w;
    struct stat st;
    return RESULT(stat(in(p, "sub/inner"), &st));
}
static int op_held_stat(struct probe *p, struct worker *w) {
    (void)p;
    struct stat st;
    return RESULT(fstat(w->fd, &st));
}
static int op_rename(struct probe *p, struct worker *w) {
    if (w->number++ % 2) return RESULT(rename(in(p, "moved-away"), in(p, "moved")));
    return RESULT(rename(in(p, "moved"), in(p, "moved-away")));
}
static int op_create(struct probe *p, struct worker *w) {
    char name[NAMES];
    snprintf(name, sizeof name, "load-%d", w->number++ % 4);
    int fd = open(in(p, name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    close(fd);
    unlink(in(p, name));
    return DONE;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Opens the worker's file again: a descriptor from before a revocation is refused for ever.
static bool take_hold(struct worker *w) {
    if (!w->file) return true;
    int fd = open(in(w->probe, w->file), w->flags | O_CLOEXEC);
    if (fd < 0) return false;
    if (w->fd >= 0) close(w->fd);
    w->fd = fd;
    if (!w->mapped) return true;
    int protection = w->flags == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
    if (w->map) munmap(w->map, FILE_SIZE);
    w->map = mmap(NULL, FILE_SIZE, protection, MAP_SHARED, fd, 0);
    if (w->map == MAP_FAILED) w->map = NULL;
    return w->map != NULL;
}

static void *work(void *argument) {
    struct worker *w = argument;
    while (!stopping) {
        unsigned before = epoch;
        uint64_t start = now();
        int result = w->operation(w->probe, w);
        uint64_t took = now() - start;
        unsigned after = epoch;
        if (took > w->longest) w->longest = took;
        if (result == DONE) {
            w->succeeded++;
            if (before == after && before % 2) w->leaked++;
        } else if ((before % 2 == 0 || before != after) && w->operation == op_rename && result == ENOENT) {
            w->number++;  // the previous rename was refused, but took place
        } else if (daemons_die && result == EIO && (w->operation == op_rename || w->operation == op_create)) {
            w->interrupted++;
        } else {
            w->last_error = result;
            if (result != EACCES && result != BUS) w->odd++, w->odd_error = result;
            if (before == after && before % 2) w->failed_while_revoked++;
            else if (before == after) w->failed_while_granted++, w->granted_error = result;
        }
        if (result != DONE) {
            usleep(200);
            take_hold(w);
        }
    }
    return NULL;
}

int run_load(const char *dir, bool dies) {
    daemons_die = dies;
    static struct probe probe;
    probe.dir = dir;
    catch_bus();
    for (size_t i = 0; i < sizeof page_pattern; i++) page_pattern[i] = pattern(i);
    struct worker workers[] = {
        {.name = "open", .operation = op_open},
        {.name = "held-read", .operation = op_held_read, .file = "read", .flags = O_RDONLY},
        {.name = "held-write", .operation = op_held_write, .file = "write", .flags = O_WRONLY},
        {.name = "fresh-write", .operation = op_fresh_write},
        {.name = "held-map", .operation = op_held_map, .file = "map-untouched", .flags = O_RDONLY, .mapped = true},
        {.name = "held-store", .operation = op_held_store, .file = "map-write", .flags = O_RDWR, .mapped = true},
        {.name = "fresh-map", .operation = op_fresh_map},
        {.name = "list", .operation = op_list},
        {.name = "stat", .operation = op_stat},
        {.name = "held-stat", .operation = op_held_stat, .file = "path", .flags = O_PATH},
        {.name = "rename", .operation = op_rename},
        {.name = "create", .operation = op_create},
    };
    size_t count = sizeof workers / sizeof *workers;
    for (size_t i = 0; i < count; i++) {
        workers[i].probe = &probe;
        workers[i].fd = -1;
        if (!take_hold(&workers[i])) fail(workers[i].file);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) fail("a thread");
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "stop", 4)) {
        bool revoked = !strncmp(line, "revoked", 7);
        if (revoked != (epoch % 2 == 1)) epoch++;
        puts("ok");
        fflush(stdout);
    }
    stopping = true;
    for (size_t i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < count; i++) {
        struct worker *w = &workers[i];
        printf("{\"worker\":\"%s\",\"succeeded\":%ju,\"leaked\":%ju,\"refused\":%ju,\"failed\":%ju,\"failedWith\":\"%s\","
               "\"odd\":%ju,\"oddError\":\"%s\",\"lastError\":\"%s\",\"interrupted\":%ju,\"longestMilliseconds\":%.3f}\n",
               w->name, (uintmax_t)w->succeeded, (uintmax_t)w->leaked, (uintmax_t)w->failed_while_revoked,
               (uintmax_t)w->failed_while_granted, result_name(w->granted_error), (uintmax_t)w->odd, result_name(w->odd_error),
               result_name(w->last_error), (uintmax_t)w->interrupted, (double)w->longest / 1e6);
    }
    puts("done");
    fflush(stdout);
    return 0;
}
