#include "clinux_supervisor.h"
#include "clinux_process.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

// The code here runs after clone(2) in a copy of a process that may have held locks. It makes only
// system calls.

// How long a killed process may take to end.
enum { END_SECONDS = 30 };

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec;
}

// Opens /proc/PID/stat of a daemon.
static int open_status(pid_t daemon) {
    char path[32] = "/proc/";
    int at = 6, digits = 0;
    char number[12];
    for (pid_t rest = daemon; rest > 0; rest /= 10) number[digits++] = (char)('0' + rest % 10);
    while (digits > 0) path[at++] = number[--digits];
    memcpy(path + at, "/stat", 6);
    return open(path, O_RDONLY | O_CLOEXEC);
}

// Whether only a dead leader is left of a process.
//
// Threads that are still in the kernel then never return from there.
static bool is_over(int status) {
    char text[512];
    ssize_t size = pread(status, text, sizeof text - 1, 0);
    if (size <= 0) return true;
    text[size] = 0;
    char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X');
}

// Waits for a daemon's death.
//
// On a busy disk a thread's system call may end a moment after its process. A caller that is told
// that its request may not have been done must find it done or not done. Calls that never end are
// not waited for.
static void await_death(int pidfd, int status) {
    for (int turns = 0; turns < 8;) {
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        int count = poll(&end, 1, 250);
        if (count > 0) return;
        if (count == 0 && status != -1 && is_over(status)) turns++;
    }
}

static bool receive(int fd, void *bytes, size_t size, int64_t deadline) {
    for (size_t done = 0; done < size;) {
        ssize_t result = recv(fd, (char *)bytes + done, size - done, MSG_DONTWAIT);
        if (result > 0) {
            done += (size_t)result;
        } else if (result == 0 || (errno != EAGAIN && errno != EINTR) || now() > deadline) {
            return false;
        } else {
            struct pollfd end = {.fd = fd, .events = POLLIN};
            poll(&end, 1, 1000);
        }
    }
    return true;
}

static bool pass_on(int fd, const int *descriptors, int count, int64_t deadline) {
    char answer;
    int result;
    while ((result = clinux_socket_send_descriptors(fd, descriptors, count)) == -EAGAIN || result == -EINTR) {
        if (now() > deadline) return false;
        struct pollfd end = {.fd = fd, .events = POLLOUT};
        poll(&end, 1, 1000);
    }
    return result == 1 && receive(fd, &answer, 1, deadline);
}

// Passes on the descriptors that the next daemon requests.
//
// Returns the daemon's last word, or 0 if it has died or takes too long.
static char serve(int fd, const struct clinux_supervised *page) {
    while (true) {
        int64_t deadline = now() + page->patience;
        char word;
        if (!receive(fd, &word, 1, deadline)) return 0;
        switch (word) {
        case CLINUX_SUPERVISOR_PAGE:
            if (!pass_on(fd, &page->page, 1, deadline)) return 0;
            break;
        case CLINUX_SUPERVISOR_DESCRIPTORS: {
            uint32_t count;
            int batch[CLINUX_DESCRIPTORS_AT_ONCE];
            if (!receive(fd, &count, sizeof count, deadline)) return 0;
            while (count > 0) {
                uint32_t next = count < CLINUX_DESCRIPTORS_AT_ONCE ? count : CLINUX_DESCRIPTORS_AT_ONCE;
                if (!receive(fd, batch, next * sizeof *batch, deadline) || !pass_on(fd, batch, (int)next, deadline)) return 0;
                count -= next;
            }
            break;
        }
        default: return word;
        }
    }
}

// Starts a daemon with a socket to this process, and returns its process ID.
//
// It has a process group and a table of descriptors of its own.
static pid_t start(char *const *arguments, int ends[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == -1) return -1;
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        if (ends[1] != 3 && dup2(ends[1], 3) == -1) _exit(126);
        if (ends[1] == 3) fcntl(3, F_SETFD, 0);
        if (syscall(SYS_close_range, 4, ~0U, 0) == -1) _exit(126);
        for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
        execve("/proc/self/exe", arguments, environ);
        _exit(127);
    }
    close(ends[1]);
    return child;
}

static bool may_go_on(struct clinux_supervised *page) {
    int64_t time = now();
    page->crashed[page->crashes++ % CLINUX_CRASHES_KEPT] = time;
    int recent = 0;
    for (int place = 0; place < CLINUX_CRASHES_KEPT; place++) {
        if (page->crashed[place] != 0 && page->crashed[place] > time - CLINUX_CRASH_SECONDS) recent++;
    }
    return recent <= (int)page->crashes_allowed;
}

// Waits until a killed process has ended, or only its threads are left in the kernel.
//
// False if it does not end.
static bool await_end(pid_t next) {
    int status = open_status(next);
    bool has_ended = false;
    for (int64_t deadline = now() + END_SECONDS; !has_ended && now() <= deadline;) {
        pid_t result = waitpid(next, NULL, WNOHANG);
        has_ended = result == next || (result == -1 && errno == ECHILD) || (status != -1 && is_over(status));
        if (!has_ended) poll(NULL, 0, 2);
    }
    if (status != -1) close(status);
    return has_ended;
}

// Ends all locks that this table of descriptors has in these files.
//
// Closing any descriptor of a file does that (fcntl(2), F_SETLK).
static void unlock(char *const *locked) {
    for (; *locked != NULL; locked++) {
        int file = open(*locked, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
        if (file != -1) close(file);
    }
}

// Supervises a daemon.
//
// `reserve`: descriptors that are closed to make room for those that are needed later. The table
// has the daemon's open descriptors, and may be full.
static void supervise(struct clinux_supervised *page, struct clinux_supervised *previous, char *const *arguments, char goodbye,
                      char *const *locked, int pidfd, int status, const int reserve[4]) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t place = 0; place < sizeof ignored / sizeof *ignored; place++) signal(ignored[place], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    setsid();
    prctl(PR_SET_NAME, "grantfs-superv");
    await_death(pidfd, status);
    // No other process exists that could take the freed numbers.
    for (int place = 0; place < 4; place++) close(reserve[place]);
    unlock(locked);
    // It never had the mount: the daemon that started it continues.
    if (previous != NULL && __atomic_load_n(&previous->armed, __ATOMIC_SEQ_CST) != CLINUX_ARMED_NOT) return;
    int64_t died = now();
    while (__atomic_load_n(&page->armed, __ATOMIC_SEQ_CST) == CLINUX_ARMED && may_go_on(page) && now() - died <= page->longest_alone) {
        int ends[2];
        pid_t next = start(arguments, ends);
        if (next == -1) return;
        char word = serve(ends[0], page);
        uint32_t expected = CLINUX_ARMED;
        if (!__atomic_compare_exchange_n(&page->armed, &expected, CLINUX_ARMED_TAKEN_BACK, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            // The next daemon has the mount, even if it has died since.
            if (page->keeper >= 0) (void)!write(page->keeper, &goodbye, 1);
            return;
        }
        // Killed in any state, because only one daemon may serve the mount.
        kill(next, SIGKILL);
        if (!await_end(next)) return;
        close(ends[0]);
        if (word == CLINUX_SUPERVISOR_DECLINED) return;
        __atomic_store_n(&page->armed, CLINUX_ARMED, __ATOMIC_SEQ_CST);
    }
}

int clinux_supervise(struct clinux_supervised *page, struct clinux_supervised *previous, char *const *arguments, char goodbye,
                     char *const *locked) {
    pid_t daemon = getpid();
    int pidfd = (int)syscall(SYS_pidfd_open, daemon, 0);
    if (pidfd == -1) return -errno;
    int reserve[4], status = open_status(daemon);
    if (status == -1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, reserve) == -1 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, reserve + 2) == -1)
        return -errno;
    // No signal tells its parent of its end. CLONE_FILES: one table of descriptors for both.
    long child = syscall(SYS_clone, CLONE_FILES, 0, 0, 0, 0);
    if (child == -1) {
        int result = -errno;
        close(pidfd);
        return result;
    }
    if (child == 0) {
        supervise(page, previous, arguments, goodbye, locked, pidfd, status, reserve);
        _exit(0);
    }
    return (int)child;
}

void clinux_arm(struct clinux_supervised *page, bool is_armed) {
    __atomic_store_n(&page->armed, is_armed ? CLINUX_ARMED : CLINUX_ARMED_NOT, __ATOMIC_SEQ_CST);
}

bool clinux_take_from(struct clinux_supervised *page) {
    uint32_t expected = CLINUX_ARMED;
    return __atomic_compare_exchange_n(&page->armed, &expected, CLINUX_ARMED_NOT, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// The whole file. Swift sees only the first part, because it imports arrays as tuples.
struct whole {
    struct clinux_supervised page;
    struct clinux_suspect suspects[CLINUX_SUSPECTS];
    uint64_t devices[CLINUX_SUPERVISED_DEVICES];
    struct clinux_request requests[CLINUX_SUPERVISED_WORKERS] __attribute__((aligned(64)));
    struct clinux_parked aside[CLINUX_PARKED];
};

size_t clinux_supervised_size(void) { return (sizeof(struct whole) + 4095) / 4096 * 4096; }

struct clinux_request *clinux_supervised_requests(struct clinux_supervised *page) { return ((struct whole *)page)->requests; }

uint64_t *clinux_supervised_devices(struct clinux_supervised *page) { return ((struct whole *)page)->devices; }

struct clinux_suspect *clinux_supervised_suspects(struct clinux_supervised *page) { return ((struct whole *)page)->suspects; }

static void make_present(void *memory, size_t size) {
    uintptr_t begin = ((uintptr_t)memory + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)memory + size) & ~(uintptr_t)4095;
    // One call instead of a fault for each page (Linux 5.14). The bytes below make sure of it.
    if (end > begin) (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
    for (size_t offset = 0; offset < size; offset += 4096) {
        volatile char *byte = (volatile char *)memory + offset;
        *byte = *byte;
    }
    volatile char *last = (volatile char *)memory + size - 1;
    *last = *last;
}

void *clinux_receive_buffer(struct clinux_request *request, size_t size) {
    void *memory = calloc(1, size);
    if (memory == NULL) return NULL;
    make_present(memory, size);
    make_present(request, sizeof *request);
    return memory;
}

int clinux_receive_journaled(int device, struct clinux_request *request, void *memory, size_t size) {
    // The kernel writes where the next daemon reads, so a request is never in this process alone.
    struct iovec parts[2] = {{request->received, CLINUX_JOURNALED_BYTES}, {(char *)memory + CLINUX_JOURNALED_BYTES, size - CLINUX_JOURNALED_BYTES}};
    ssize_t result = readv(device, parts, 2);
    if (result < 0) return -errno;
    memcpy(memory, request->received, result < CLINUX_JOURNALED_BYTES ? (size_t)result : CLINUX_JOURNALED_BYTES);
    return (int)result;
}

void clinux_journal_park(struct clinux_supervised *page, uint32_t place, const void *message, size_t size) {
    struct clinux_parked *aside = &((struct whole *)page)->aside[place];
    memcpy(aside->bytes, message, size < CLINUX_JOURNALED_BYTES ? size : CLINUX_JOURNALED_BYTES);
    __atomic_store_n(&aside->size, (uint32_t)size, __ATOMIC_RELEASE);
}

void clinux_journal_unpark(struct clinux_supervised *page, uint32_t place) {
    __atomic_store_n(&((struct whole *)page)->aside[place].size, 0, __ATOMIC_RELEASE);
}

const void *clinux_journaled_request(struct clinux_supervised *page, uint32_t place, size_t *size) {
    struct whole *whole = (struct whole *)page;
    const uint8_t *bytes;
    if (place < CLINUX_SUPERVISED_WORKERS) {
        bytes = whole->requests[place].received;
        // struct fuse_in_header begins with the length of all.
        uint32_t length;
        memcpy(&length, bytes, sizeof length);
        *size = length;
    } else {
        const struct clinux_parked *aside = &whole->aside[place - CLINUX_SUPERVISED_WORKERS];
        bytes = aside->bytes;
        *size = aside->size;
    }
    return *size == 0 ? NULL : bytes;
}
