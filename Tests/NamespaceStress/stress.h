// Several processes make, rename, link and remove names in the same directories. Each knows its own names exactly, so that every result can
// be checked while the others work beside it. Some names are shared by all processes, for races with an unpredictable outcome.
#pragma once
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORIES = 8, ENTRIES = 120, SHARED = 12 };

enum kind { NOTHING, FILE_, DIRECTORY, LINK, FIFO };

// One name of this process.
struct entry {
    enum kind kind;
    int directory;    // the index of its shared directory
    unsigned number;  // makes the name, together with the process
    unsigned inode;   // files: entries with the same number are hard links of each other
    bool has_child;   // directories: whether it contains a file
};

struct worker {
    int id;
    uint64_t random;
    int directories[DIRECTORIES];  // descriptors
    struct entry entries[ENTRIES];
    unsigned next_number, next_inode;
    unsigned long done;
};

// main.c
uint64_t draw(struct worker *w, uint64_t below);
void fail(struct worker *w, const char *what, const char *name, int got, int wanted) __attribute__((noreturn));

// operations.c
void name_of(const struct worker *w, const struct entry *e, char name[static 32]);
void expect(struct worker *w, const char *what, const char *name, int result, int wanted);
void step(struct worker *w);

// checks.c
unsigned links_of(const struct worker *w, const struct entry *e);
void check_entry(struct worker *w, const struct entry *e);
void check_listing(struct worker *w, int directory);
