// Random reads and changes of one file, in every way the kernel has, against a copy of its contents in memory.
// A sequence is a seed: the same seed does the same operations everywhere.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { BLOCK = 4096, NOTED = 24 };

struct exerciser {
    const char *path;
    const char *behind;  // the same file on the host, compared after each sync; NULL when there is none to compare
    uint64_t random;
    unsigned operation;  // the number of the one that runs
    int fd, direct_fd, append_fd;
    unsigned char *model;  // what the file holds; zero from `size` to `limit`
    size_t size, limit;
    unsigned char *buffer, *aligned;  // `limit` bytes each, the second one aligned for O_DIRECT
    bool direct_refused;
    char noted[NOTED][96];  // the last operations, for whoever reads of a failure
};

struct operation {
    const char *name;
    void (*run)(struct exerciser *);
    unsigned weight;
    bool refused;  // the filesystem does not have it: left out from then on, and said at the end
};

extern struct operation reads[], changes[], extents[], whole[];

// main.c
uint64_t draw(struct exerciser *e, uint64_t below);
void note(struct exerciser *e, const char *name, size_t offset, size_t length);
void fail(struct exerciser *e, const char *what) __attribute__((noreturn));
void fail_errno(struct exerciser *e, const char *what) __attribute__((noreturn));
// Takes an operation out when the filesystem refuses it by this errno. Whether it did.
bool refuse(struct operation *operation, int error);

// model.c
void expect(struct exerciser *e, const char *what, const unsigned char *got, size_t offset, size_t length);
void expect_size(struct exerciser *e, int fd, const char *what);
// A place to read: at least one byte of the file. false when the file is empty.
bool choose_read(struct exerciser *e, size_t *offset, size_t *length);
// A place to write, perhaps beyond the end, within the limit; fresh bytes for it are in `buffer`.
void choose_write(struct exerciser *e, size_t *offset, size_t *length);
void wrote(struct exerciser *e, const unsigned char *bytes, size_t offset, size_t length);
void resized(struct exerciser *e, size_t size);
// Opens the file anew, all descriptors.
void open_all(struct exerciser *e);
