// How the files of this target make system calls. Swift does not import it.
#pragma once
#include <errno.h>
#include <stdio.h>

// Returns errno negated, 1 to 4095, or -EIO for a number outside of that range.
static inline int negative_errno(void) { return errno >= 1 && errno <= 4095 ? -errno : -EIO; }

// Repeats a call that was interrupted (EINTR), except close(2): see clinux_close.
//
// The result is 0 or more, or -1 to -4095. A filesystem can make a call return another number. For
// example, tmpfs answers a search for a hole near 2^63 with the lowest offset there is. A server
// may answer an ioctl(2) with any number, which the C library takes for a result. Such a number
// becomes -EOVERFLOW here, so that no caller negates it.
#define RETRY(call)                                            \
    ({                                                         \
        __typeof__(call) result_;                              \
        do { result_ = (call); } while (result_ == -1 && errno == EINTR); \
        result_ >= 0 ? result_ : (__typeof__(call))(result_ == -1 ? negative_errno() : -EOVERFLOW); \
    })

// The directory of this process's descriptors (O_PATH), opened once. -1 without /proc.
int clinux_own_descriptors(void);

// The magic link of an open descriptor, for calls that take no descriptor.
static inline void magic_path(char out[40], int fd) { snprintf(out, 40, "/proc/thread-self/fd/%d", fd); }
