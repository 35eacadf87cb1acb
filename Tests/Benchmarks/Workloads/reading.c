#include "workloads.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_SIZE = 64 << 20, BLOCK = 4096 };

static void prepare(void) { make_file("data", FILE_SIZE); }

/// The whole file, 128 KiB at a time, as cat(1) reads.
static void sequential(void) {
    static char buffer[128 << 10];
    int file = (int)check(open("data", O_RDONLY), "open");
    while (check(read(file, buffer, sizeof buffer), "read") > 0) {}
    close(file);
}

static void blocks(int number) {
    static char buffer[BLOCK];
    int file = (int)check(open("data", O_RDONLY), "open");
    for (int i = 0; i < number; i++) check(pread(file, buffer, BLOCK, (off_t)(pick() % (FILE_SIZE / BLOCK)) * BLOCK), "pread");
    close(file);
}

static void many_blocks(void) { blocks(40000); }
/// From the disk: few enough blocks for a round of seconds.
static void some_blocks(void) { blocks(1000); }

/// One byte of each page of a new mapping.
static void mapped(void) {
    int file = (int)check(open("data", O_RDONLY), "open");
    volatile const char *bytes = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) fail("mmap");
    for (long place = 0; place < FILE_SIZE; place += BLOCK) (void)bytes[place];
    munmap((void *)bytes, FILE_SIZE);
    close(file);
}

/// One request and its reply: attributes that must not come from a cache (statx(2),
/// AT_STATX_FORCE_SYNC).
static void attributes(void) {
    int file = (int)check(open("data", O_RDONLY), "open");
    for (int i = 0; i < 5000; i++) {
        struct statx status;
        check(statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &status), "statx");
    }
    close(file);
}

const struct workload reading[] = {
    {"read-sequential", prepare, sequential}, {"read-random", prepare, many_blocks}, {"read-random-some", prepare, some_blocks},
    {"read-mapped", prepare, mapped},         {"round-trip", prepare, attributes},   {NULL, NULL, NULL},
};
