// Random reads and changes of one file, by every call of the kernel, compared with a copy of its
// contents in memory. A sequence is a seed: the same seed does the same operations everywhere.
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
    const char *behind;  // the same file on the host, compared after each sync, or NULL
    uint64_t random;
    unsigned operation;  // the number of the present operation
    int fd, direct_fd, append_fd;
    unsigned char *model;  // the file's expected contents, zero from `size` to `limit`
    size_t size, limit;
    unsigned char *buffer, *aligned;  // `limit` bytes each, the second one aligned for O_DIRECT
    bool direct_refused;
    char noted[NOTED][96];  // the last operations, for the report of a failure
};

struct operation {
    const char *name;
    void (*run)(struct exerciser *);
    unsigned weight;
    bool refused;  // the filesystem does not support it: skipped from then on, and reported at the end
};

extern struct operation reads[], changes[], extents[], whole[];

// main.c
uint64_t draw(struct exerciser *e, uint64_t below);
void note(struct exerciser *e, const char *name, size_t offset, size_t length);
void fail(struct exerciser *e, const char *what) __attribute__((noreturn));
void fail_errno(struct exerciser *e, const char *what) __attribute__((noreturn));
// Removes an operation if the filesystem refuses it with this errno. Returns whether it did.
bool refuse(struct operation *operation, int error);

// model.c
void expect(struct exerciser *e, const char *what, const unsigned char *got, size_t offset, size_t length);
void expect_size(struct exerciser *e, int fd, const char *what);
// Chooses a range to read, of at least one byte of the file. Returns false if the file is empty.
bool choose_read(struct exerciser *e, size_t *offset, size_t *length);
// Chooses a range to write within the limit, perhaps beyond the end. New bytes for it are in
// `buffer`.
void choose_write(struct exerciser *e, size_t *offset, size_t *length);
void wrote(struct exerciser *e, const unsigned char *bytes, size_t offset, size_t length);
void resized(struct exerciser *e, size_t size);
// Opens all descriptors of the file again.
void open_all(struct exerciser *e);
