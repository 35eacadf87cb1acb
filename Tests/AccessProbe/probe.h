// The probe: a program that holds every kind of handle below a directory and tries every kind of access with them. Tests run it below a
// mount before a revocation, after it, and after the restore. They also run it natively, for comparison.
#pragma once
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILE_SIZE = 65536, PAGE = 4096, LISTED = 20, NAMES = 64 };

// Results other than an errno.
enum { DONE = 0, BUS = -1, SKIPPED = -2, WRONG = -3, KILLED = -4 };

struct probe {
    const char *dir;
    bool cold;
    int read_fd, write_fd, rdwr_fd, append_fd, direct_fd, dup_fd, passed_fd, proc_fd;
    int path_fd, path_dir_fd, link_fd, prog_fd;
    int dir_fd, list_fd, unlinked_fd, unlinked_dir_fd, target_fd, null_fd, memory_fd;
    int flock_fd, posix_fd, ofd_fd, inotify_fd, close_fd, fifo_fd;
    unsigned char *map_touched, *map_untouched, *map_write, *map_write_untouched;
    unsigned char *map_private, *map_copied, *map_locked, *map_exec;
    int child_in, child_out;
    pid_t child;
    unsigned round;
    struct file_handle *handle;
};

// The required result of the access once the scope is revoked.
#define AFTER_REFUSED "EACCES"
#define AFTER_BUS "SIGBUS"
#define AFTER_FAILS "FAIL"  // any failure
#define AFTER_WORKS "OK"    // close, unlock, a program's own memory, a FIFO's pipe
#define AFTER_OPEN "ANY"    // FUSE has no request for it, and it reveals no content

struct access {
    const char *held, *kind, *after;
    bool change;  // EROFS below a read-only grant
    int (*attempt)(struct probe *);
};

extern const struct access reading_accesses[], writing_accesses[], directory_accesses[], path_accesses[], map_accesses[],
    lock_accesses[], ring_accesses[];

#define RESULT(expression) ((expression) < 0 ? errno : DONE)

// setup.c
int set_up(const char *dir, uid_t uid, gid_t gid);
void hold(struct probe *p);
const char *in(struct probe *p, const char *name);  // one of a few rotating buffers
unsigned char pattern(size_t offset);
int check_pattern(const unsigned char *bytes, ssize_t count, size_t offset);
void fail(const char *what) __attribute__((noreturn));

// memory.c
void catch_bus(void);
int touch(volatile unsigned char *address, size_t offset);
int store_byte(volatile unsigned char *address, size_t offset, unsigned char byte);
int store(volatile unsigned char *address, size_t offset);

// spawn.c
int run_program(const char *path, const char *argument);
int text_child(void);
void start_text_child(struct probe *p);

// again.c
bool populating_ends(void);
int populate(void *address, size_t length);

// other roles
int run_again(const char *file, const char *how);
int run_load(const char *dir, bool daemons_die);
int run_lock(int count, char **arguments);
int run_ranges(const char *file, const char *kind);
int run_dirty(const char *file);
int run_swap(const char *left, const char *right);
int run_peek(const char *file);
int run_connect(const char *socket);
int run_seekdir(const char *dir);
int run_document(int count, char **paths);
int run_call(int count, char **arguments);
int run_stuck(const char *file);
int run_late(const char *operation, const char *path, int threads);
int run_refused(const char *file);
const char *result_name(int result);
