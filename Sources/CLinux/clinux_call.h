// How the files of this target call the system. Not part of what Swift sees.
#pragma once
#include <errno.h>
#include <stdio.h>

// EINTR is handled here, once: an interrupted call is made again. close(2) is the exception, see clinux_close.
#define RETRY(call)                                            \
    ({                                                         \
        __typeof__(call) result_;                              \
        do { result_ = (call); } while (result_ == -1 && errno == EINTR); \
        result_ == -1 ? (__typeof__(call))-errno : result_;    \
    })

// The directory of this process's descriptors (O_PATH), opened once; -1 where there is no /proc.
int clinux_own_descriptors(void);

// The magic link of an open descriptor, for calls that take none.
static inline void magic_path(char out[40], int fd) { snprintf(out, 40, "/proc/thread-self/fd/%d", fd); }
