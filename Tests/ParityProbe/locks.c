// Locks, which never wait, because a waiting process would stop the script.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static void call_flock(char **a) { say_result(flock(slot(a[0]), (int)number(a[1]) | LOCK_NB)); }

static struct flock range(char **a) {
    return (struct flock){.l_type = (short)number(a[1]), .l_whence = (short)number(a[4]), .l_start = number(a[2]), .l_len = number(a[3])};
}
// From the end of a directory, or from the position of its listing: xfs does not keep the size that
// fcntl(2) uses, and btrfs ends far out (docs/conformance.md).
static bool is_ruled_out(int fd, const struct flock *lock) {
    struct stat status;
    bool is_directory = lock->l_whence != SEEK_SET && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_directory) say("directory");
    return is_directory;
}
// POSIX allows both errors.
static void say_lock(int result) {
    if (result < 0 && errno == EACCES) errno = EAGAIN;
    say_result(result);
}
static void call_lock(char **a) {
    struct flock lock = range(a);
    if (!is_ruled_out(slot(a[0]), &lock)) say_lock(fcntl(slot(a[0]), F_SETLK, &lock));
}
static void call_olock(char **a) {
    struct flock lock = range(a);
    if (!is_ruled_out(slot(a[0]), &lock)) say_lock(fcntl(slot(a[0]), F_OFD_SETLK, &lock));
}
// Without the pid, which differs in each run, and which is the daemon's for locks of the host.
static void call_getlk(char **a) {
    struct flock lock = range(a);
    if (is_ruled_out(slot(a[0]), &lock)) return;
    int result = fcntl(slot(a[0]), F_GETLK, &lock);
    if (result < 0) say_result(-1);
    else if (lock.l_type == F_UNLCK) say("free");
    else say("%d %d %ld+%ld", lock.l_type, lock.l_whence, (long)lock.l_start, (long)lock.l_len);
}

const struct call calls_locks[] = {
    {"flock", 2, call_flock}, {"lock", 5, call_lock}, {"olock", 5, call_olock}, {"getlk", 5, call_getlk}, {NULL, 0, NULL},
};
