#include "workloads.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char buffer[1 << 20];

// Untouched memory shares one page of zeros, which stays in the nearest cache. Writing it would be
// faster than writing real data.
void fill_buffer(void) { memset(buffer, 'x', sizeof buffer); }

static void nothing(void) {}

/// Overwrites an existing file, so that the time includes neither the freeing of old blocks nor the
/// search for new ones.
static void prepare(void) { make_file("written", 64 << 20); }

static void write_over(size_t block, size_t size) {
    int file = (int)check(open("written", O_WRONLY), "open");
    for (size_t done = 0; done < size; done += block) check(pwrite(file, buffer, block, (off_t)done), "pwrite");
    check(close(file), "close");
}

static void large(void) { write_over(1 << 20, 64 << 20); }
static void medium(void) { write_over(128 << 10, 64 << 20); }
static void small(void) { write_over(4096, 16 << 20); }

/// A log: appends one line at a time.
static void append(void) {
    int file = (int)check(open("log", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644), "open");
    for (int i = 0; i < 4000; i++) check(write(file, buffer, 100), "write");
    check(close(file), "close");
}

/// Overwrites one file during many pauses of a watch, so that the average includes the cost of the watch. It has its
/// own file, because the kernel's handling of a file depends on how it was written before.
static void prepare_rewrite(void) { make_file("rewritten", 16 << 20); }

static void rewrite(void) {
    int file = (int)check(open("rewritten", O_WRONLY), "open");
    for (int i = 0; i < 300000; i++) check(pwrite(file, buffer, 4096, (off_t)(i % 4096) * 4096), "pwrite");
    check(close(file), "close");
}

const struct workload writing[] = {
    {"write-1m", prepare, large}, {"write-128k", prepare, medium}, {"write-4k", prepare, small},
    {"append", nothing, append},  {"rewrite", prepare_rewrite, rewrite}, {NULL, NULL, NULL},
};
