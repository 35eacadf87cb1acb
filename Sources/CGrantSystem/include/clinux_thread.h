#pragma once
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Per-thread identity by raw system calls: glibc's wrappers change every thread of the process and are banned.
// Each call changes the calling thread alone and returns 0 or -errno.
int clinux_thread_unshare_fs(void);
int clinux_thread_setfsuid(uid_t uid);
int clinux_thread_setfsgid(gid_t gid);
int clinux_thread_setgroups(const gid_t *groups, size_t count);
mode_t clinux_thread_umask(mode_t mask);
// SECBIT_NO_SETUID_FIXUP for the process, before any thread is made: a change of fsuid then leaves capabilities alone.
int clinux_keep_capabilities_across_setuid(void);
// Whether the calling thread has CAP_DAC_READ_SEARCH (and so may open by handle), by trying nothing.
bool clinux_has_capability(int capability);
// Puts a capability that this thread is permitted into its effective set, or takes it out.
int clinux_thread_use_capability(int capability, bool use);
// Makes `allowed`, a bit for each capability, the effective set of the calling thread, as far as it is permitted. `before` (or NULL) gets what
// was effective, for another call to put back.
int clinux_thread_limit_capabilities(uint64_t allowed, uint64_t *before);
// Gives the process a proc(5) of its own, in which what follows looks for other threads, instead of /proc: for where that hides them (hidepid=). 0 or -errno.
// Needs CAP_SYS_ADMIN, and Linux 5.8 for the two to have settings of their own. To be called before there are threads.
int clinux_open_own_proc(void);
// The effective capabilities of another thread, a bit for each (/proc/TID/status). 0 when that cannot be found out, and when it is in another user
// namespace than the caller: what it has there is no privilege here.
uint64_t clinux_other_capabilities(pid_t tid);
// Whether a group is among another thread's supplementary ones; false when that cannot be found out, or is past the first few hundred.
bool clinux_other_is_in_group(pid_t tid, gid_t group);
// Gives the calling thread the supplementary groups of another one: the first few hundred, none when they cannot be found out.
int clinux_thread_take_groups(pid_t tid);
pid_t clinux_gettid(void);
// From now on the calling thread can be woken from a system call that waits, by `clinux_thread_wake`: the call fails with EINTR. 0 or -errno.
int clinux_thread_allow_wake(void);
// Wakes a thread of this process from the call in which it waits. Nothing happens to one that waits in none. 0 or -errno.
int clinux_thread_wake(pid_t tid);
int clinux_set_thread_name(const char *name);
// Waits for a semaphore until a moment of CLOCK_MONOTONIC in nanoseconds, see sem_clockwait(3). 0, -ETIMEDOUT or -EINTR.
int clinux_semaphore_wait(sem_t *semaphore, long long until);
// 64 bits of the kernel's clock, CLOCK_REALTIME or CLOCK_MONOTONIC, in nanoseconds.
long long clinux_clock_realtime(void);
long long clinux_clock_monotonic(void);

// One pointer for each thread: the worker it is. Initial-exec, so that a look costs one instruction.
extern __thread void *clinux_own_worker __attribute__((tls_model("initial-exec")));
static inline void *clinux_worker(void) { return clinux_own_worker; }
static inline void clinux_set_worker(void *worker) { clinux_own_worker = worker; }

// The identity this thread acts with now, as it last set it.
struct clinux_thread_identity { uid_t uid; gid_t gid; mode_t umask; bool keeps_set_id, has_groups; };
extern __thread struct clinux_thread_identity clinux_own_identity __attribute__((tls_model("initial-exec")));
static inline struct clinux_thread_identity clinux_identity(void) { return clinux_own_identity; }
static inline void clinux_set_identity(struct clinux_thread_identity identity) { clinux_own_identity = identity; }

// How many locks this thread holds.
extern __thread unsigned clinux_own_locks __attribute__((tls_model("initial-exec")));
static inline void clinux_lock_acquired(void) { clinux_own_locks++; }
static inline void clinux_lock_released(void) { clinux_own_locks--; }
// From now on a trap of Swift (SIGILL or SIGTRAP, raised by an instruction) of a thread that holds no lock calls `handler` on that thread, which is
// parked for ever when that says true. Otherwise, and for every other thread, the process ends, as it does without this. Returns 0 or -errno.
int clinux_trap_install(bool (*handler)(void));
// Lets such signals reach the calling thread: a blocked one ends the process.
void clinux_trap_allow(void);
