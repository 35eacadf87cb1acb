// Every call that takes a path, with every kind of path, as several users. Each case prints its result on one line. The
// expected results are those of the same table for a directory beside the mount.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

// A user without privileges, and a group that only some of them have.
enum { USER = 65534, GROUP = 4242 };

struct call {
    const char *name;
    int (*run)(const char *path);  // 0, or the errno. May set `detail`
    bool changes;                  // the tree is made again after the call has succeeded
};

extern const struct call opening_calls[], naming_calls[], attribute_calls[], looking_calls[];
extern char detail[256];  // a call's results besides its errno

#define TRY(call) ((call) < 0 ? errno : 0)

// tree.c: the objects to which the paths lead
extern const char *const situations[];
const char *path_of(const char *situation);  // the special ones are made here
void make_tree(void);
void clear_tree(void);
uint64_t digest(void);
void fail(const char *what) __attribute__((noreturn));

// times.c
void print_times(void);

// modes.c
void print_modes(void (*become_one)(int who), void (*return_to_root)(void), int count);
// limits.c
void print_limits(void);
// owners.c
void print_owners(void);
// watching.c
void print_watching(void);
// descriptors.c
void print_descriptors(void);
