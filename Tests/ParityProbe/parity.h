// Makes the system calls of a script as several users and prints the result of each. A run on a
// native directory and one through a mount can then be compared line by line.
//
//   ParityProbe run DIRECTORY HOST SCRIPT TRANSCRIPT [--contract]
//
// The calls are made in DIRECTORY. HOST is the same directory without the mount (the same path in a
// native run). SCRIPT has one call a line: the user's number, the call, its arguments. TRANSCRIPT
// gets one result a line.
// With --contract the calls with other results through a mount get those results (contract.c). Then
// it prints `end` and takes calls from standard input.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { SLOTS = 8, MAPS = 4, USERS = 3, DATA_LIMIT = 1 << 18 };

struct mapping {
    char *at;
    size_t length;
    bool is_private, was_written;
    // The file, and the offset of the mapping in it.
    dev_t device;
    ino_t inode;
    off_t start;
};

// The resources of one user's process. An empty slot is -1, so that a call on it gives EBADF on
// both sides.
struct worker {
    const char *directory, *host;
    bool contract;
    int slots[SLOTS];
    struct mapping maps[MAPS];
    char *data;  // DATA_LIMIT bytes, aligned to a page
};
extern struct worker self;

struct call {
    const char *name;
    int arguments;
    void (*make)(char **);
};
extern const struct call calls_files[], calls_data[], calls_names[], calls_attributes[], calls_xattrs[], calls_locks[], calls_maps[],
    calls_directories[], calls_whole[];

// worker.c
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints the number, or the name of errno if it is -1.
void say_result(long result);
int slot(const char *text);
// Puts a descriptor (or -1, with errno) into a slot, closes the former one, and prints the result.
void fill_slot(const char *text, int fd);
long number(const char *text);
// `[fN:]path`: the descriptor to start from, and the path with its abbreviations expanded. See
// worker.c.
const char *place(const char *text, int *directory);
// Bytes that depend on `seed`.
void fill_data(size_t count, unsigned seed);
// Rounds an offset or size to a multiple of a page if the descriptor has O_DIRECT.
long aligned(int fd, long value);
unsigned hash(const void *bytes, size_t count, unsigned start);
int main_worker(char **arguments);

// contract.c
// The errno that the contract promises for a call, or 0 if the result equals that of the native directory.
int contract_says(const char *name, char **arguments);
// Whether a mount shows the attribute `name`.
bool contract_shows(const char *attribute);

// snapshot.c
void snapshot(const char *directory, bool with_security, bool with_times);
// Prints a time in a form that can be compared: in full if a script set it, `now` otherwise.
void say_time(const char *label, struct timespec time);
void say_attributes(const struct stat *status, bool with_times);
// Runs `body(data)`. Returns false if SIGBUS or SIGSEGV ended it.
bool survives(void (*body)(void *), void *data);
