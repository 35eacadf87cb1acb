// How the files of this target call the system. Not part of what Swift sees.
#pragma once
#include <errno.h>
#include <stdio.h>

// Returns errno negated, 1 to 4095; -EIO for a number outside of that range.
static inline int negative_errno(void) { return errno >= 1 && errno <= 4095 ? -errno : -EIO; }

// Repeats a call that was interrupted (EINTR). close(2) is the exception, see clinux_close.
//
// The result is 0 or more, or -1 to -4095. A filesystem can make a call return something else: tmpfs answers a search for a hole
// near 2^63 with the lowest offset there is, a server may answer an ioctl(2) with any number, and the C library takes that for a
// result. It becomes -EOVERFLOW here, so that nobody negates it.
#define RETRY(call)                                            \
    ({                                                         \
        __typeof__(call) result_;                              \
        do { result_ = (call); } while (result_ == -1 && errno == EINTR); \
        result_ >= 0 ? result_ : (__typeof__(call))(result_ == -1 ? negative_errno() : -EOVERFLOW); \
    })

// The directory of this process's descriptors (O_PATH), opened once; -1 where there is no /proc.
int clinux_own_descriptors(void);

// The magic link of an open descriptor, for calls that take no descriptor.
static inline void magic_path(char out[40], int fd) { snprintf(out, 40, "/proc/thread-self/fd/%d", fd); }
