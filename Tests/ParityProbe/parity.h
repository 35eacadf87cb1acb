// One program that makes the system calls of a script as several users and prints what each gave, so that a run on a native
// directory and one through a mount can be compared line by line.
//
//   ParityProbe run DIRECTORY HOST SCRIPT TRANSCRIPT [--contract]
//
// DIRECTORY is where the calls are made, HOST the same directory without the mount (the same path in a native run). SCRIPT has one call
// a line: the user's number, the call, its arguments. TRANSCRIPT gets one answer a line. With --contract the calls that a mount answers
// in its own way get that answer (contract.c). Then it prints `end` and takes calls from standard input.
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
    // Which file, and from where.
    dev_t device;
    ino_t inode;
    off_t start;
};

// What one user's process holds. An empty slot is -1, so that a call on it gives EBADF on both sides.
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
// The number, or the name of errno when it is -1.
void say_result(long result);
int slot(const char *text);
// Puts a descriptor (or -1, with errno) into a slot, closing what was there, and says so.
void fill_slot(const char *text, int fd);
long number(const char *text);
// `[fN:]path`: the descriptor to start from, and the path with its abbreviations written out. See worker.c.
const char *place(const char *text, int *directory);
// Bytes that depend on `seed`.
void fill_data(size_t count, unsigned seed);
// Offsets and sizes for a descriptor of O_DIRECT have to be multiples of a page.
long aligned(int fd, long value);
unsigned hash(const void *bytes, size_t count, unsigned start);
int main_worker(char **arguments);

// contract.c
// The errno that the contract gives for a call, or 0 when it is the native directory's.
int contract_says(const char *name, char **arguments);
// Whether the attribute `name` is shown by a mount.
bool contract_shows(const char *attribute);

// snapshot.c
void snapshot(const char *directory, bool with_security, bool with_times);
// A time as it can be compared: written out when it was set by a script, `now` otherwise.
void say_time(const char *label, struct timespec time);
void say_attributes(const struct stat *status, bool with_times);
// Runs `body(data)`; false when it was ended by SIGBUS or SIGSEGV.
bool survives(void (*body)(void *), void *data);
