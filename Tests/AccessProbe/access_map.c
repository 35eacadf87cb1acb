#include "probe.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

static int do_touched(struct probe *p) { return touch(p->map_touched, 0); }
static int do_touched_last(struct probe *p) { return touch(p->map_touched, FILE_SIZE - 1); }
static int do_untouched(struct probe *p) { return touch(p->map_untouched, 3 * PAGE); }
static int do_store(struct probe *p) { return store(p->map_write, 0); }
static int do_load_written(struct probe *p) { return touch(p->map_write, PAGE); }
static int do_store_untouched(struct probe *p) { return store(p->map_write_untouched, 2 * PAGE); }
static int do_private(struct probe *p) { return touch(p->map_private, 0); }
static int do_copied(struct probe *p) { return touch(p->map_copied, 0); }
static int do_copied_other_page(struct probe *p) { return touch(p->map_copied, 5 * PAGE); }
static int do_locked(struct probe *p) { return touch(p->map_locked, 0); }
static int do_text(struct probe *p) {
    int result = touch(p->map_exec, 0);
    return result == WRONG ? DONE : result;  // here it is a program, not the pattern
}
static int do_msync(struct probe *p) { return !p->map_write ? SKIPPED : RESULT(msync(p->map_write, FILE_SIZE, MS_SYNC)); }
static int do_map_anew(struct probe *p) {
    unsigned char *address = mmap(NULL, FILE_SIZE, PROT_READ, MAP_SHARED, p->read_fd, 0);
    if (address == MAP_FAILED) return errno;
    int result = touch(address, 0);
    munmap(address, FILE_SIZE);
    return result;
}
static int do_map_anew_private(struct probe *p) {
    unsigned char *address = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, p->rdwr_fd, 0);
    if (address == MAP_FAILED) return errno;
    int result = store(address, 0);
    munmap(address, FILE_SIZE);
    return result;
}
static int do_write_from_map(struct probe *p) { return !p->map_touched ? SKIPPED : RESULT(pwrite(p->memory_fd, p->map_touched, PAGE, 0)); }
static int do_populate(struct probe *p) { return !p->map_touched ? SKIPPED : populate(p->map_touched, PAGE); }
static int do_mincore(struct probe *p) {
    if (!p->map_touched) return SKIPPED;
    unsigned char residency[FILE_SIZE / PAGE];
    return RESULT(mincore(p->map_touched, FILE_SIZE, residency));
}
static int do_program(struct probe *p) {
    if (p->child == 0) return BUS;
    char byte = 0;
    if (write(p->child_in, "x", 1) == 1 && read(p->child_out, &byte, 1) == 1) return DONE;
    int status;
    if (waitpid(p->child, &status, 0) != p->child) return errno;
    p->child = 0;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? BUS : KILLED;
}

const struct access map_accesses[] = {
    {"map-shared-touched", "load", AFTER_BUS, false, do_touched},
    {"map-shared-touched", "load-last-page", AFTER_BUS, false, do_touched_last},
    {"map-shared-untouched", "load", AFTER_BUS, false, do_untouched},
    {"map-write-touched", "load", AFTER_BUS, false, do_load_written},
    {"map-write-touched", "store", AFTER_BUS, false, do_store},
    {"map-write-untouched", "store", AFTER_BUS, false, do_store_untouched},
    {"map-private", "load", AFTER_BUS, false, do_private},
    {"map-private-copied", "load", AFTER_WORKS, false, do_copied},
    {"map-private-copied", "load-another-page", AFTER_BUS, false, do_copied_other_page},
    {"map-mlocked", "load", AFTER_BUS, false, do_locked},
    {"map-program", "load", AFTER_BUS, false, do_text},
    {"map-write-touched", "msync", AFTER_REFUSED, false, do_msync},
    {"fd-read", "mmap-and-load", AFTER_BUS, false, do_map_anew},
    {"fd-rdwr", "mmap-private-and-store", AFTER_BUS, false, do_map_anew_private},
    {"map-shared-touched", "write-from-it", AFTER_FAILS, false, do_write_from_map},
    {"map-shared-touched", "madvise-populate", AFTER_FAILS, false, do_populate},
    {"map-shared-touched", "mincore", AFTER_OPEN, false, do_mincore},
    {"running-program", "go-on", AFTER_BUS, false, do_program},
    {NULL, NULL, NULL, false, NULL},
};

static int posix_lock(int fd, int command, short type, off_t start) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
    return RESULT(fcntl(fd, command, &lock));
}
static int do_setlk(struct probe *p) { return posix_lock(p->posix_fd, F_SETLK, F_WRLCK, 100); }
static int do_getlk(struct probe *p) { return posix_lock(p->posix_fd, F_GETLK, F_WRLCK, 300); }
static int do_unlk(struct probe *p) { return posix_lock(p->posix_fd, F_SETLK, F_UNLCK, 100); }
static int do_ofd_setlk(struct probe *p) { return posix_lock(p->ofd_fd, F_OFD_SETLK, F_WRLCK, 200); }
static int do_ofd_unlk(struct probe *p) { return posix_lock(p->ofd_fd, F_OFD_SETLK, F_UNLCK, 200); }
static int do_flock(struct probe *p) { return RESULT(flock(p->flock_fd, LOCK_SH | LOCK_NB)); }
static int do_funlock(struct probe *p) { return RESULT(flock(p->flock_fd, LOCK_UN)); }
static int do_flock_directory(struct probe *p) {
    int result = RESULT(flock(p->dir_fd, LOCK_SH | LOCK_NB));
    if (result == DONE) flock(p->dir_fd, LOCK_UN);
    return result;
}

const struct access lock_accesses[] = {
    {"fd-locked", "fcntl-setlk", AFTER_REFUSED, false, do_setlk},
    {"fd-locked", "fcntl-getlk", AFTER_REFUSED, false, do_getlk},
    {"fd-locked", "fcntl-unlock", AFTER_OPEN, false, do_unlk},
    {"fd-locked", "fcntl-ofd-setlk", AFTER_REFUSED, false, do_ofd_setlk},
    {"fd-locked", "fcntl-ofd-unlock", AFTER_OPEN, false, do_ofd_unlk},
    {"fd-locked", "flock", AFTER_REFUSED, false, do_flock},
    {"fd-locked", "flock-unlock", AFTER_OPEN, false, do_funlock},
    // FUSE has no locks on directories. The kernel keeps them to itself, and they show nothing.
    {"dirfd", "flock", AFTER_OPEN, false, do_flock_directory},
    {NULL, NULL, NULL, false, NULL},
};
