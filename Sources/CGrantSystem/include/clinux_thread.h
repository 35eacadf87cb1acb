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
// Sets the calling thread's effective capabilities to `allowed` (one bit each), as far as they are permitted. Stores the old set in
// `before` (or NULL), to be restored by another call.
int clinux_thread_limit_capabilities(uint64_t allowed, uint64_t *before);
// Gives the process a proc(5) mount of its own, in which the functions below look other threads up: for systems whose /proc hides
// them (hidepid=). 0 or -errno. Needs CAP_SYS_ADMIN, and Linux 5.8, since when mounts of proc have options of their own. Call it
// before there are threads.
int clinux_open_own_proc(void);
// The effective capabilities of another thread, one bit each (/proc/TID/status). 0 when they cannot be read, and when the thread is
// in another user namespace: what it has there is no privilege here.
uint64_t clinux_other_capabilities(pid_t tid);
// Whether a group is among another thread's supplementary groups. False when that cannot be read, or the group is past the first
// few hundred.
bool clinux_other_is_in_group(pid_t tid, gid_t group);
// Gives the calling thread the supplementary groups of another one: the first few hundred; none when they cannot be read.
int clinux_thread_take_groups(pid_t tid);
// The state of any thread, a letter as in /proc/TID/status. 0 when there is no such thread, '?' when its state is not visible.
char clinux_other_state(pid_t tid);
// The processor time of any thread in nanoseconds; -1 when there is no such thread, or that is not visible.
long long clinux_other_runtime(pid_t tid);
// How a thread is scheduled.
struct clinux_scheduling {
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } attributes;
    unsigned char processors[1024];
    bool has_processors;
};
// Has any thread scheduled before other programs, on every processor that it may use: as SCHED_FIFO if `realtime`, else with the lowest
// nice value. What the caller may not change stays as it was. Stores how it was scheduled, for `clinux_other_restore`, which leaves alone
// what somebody else has changed meanwhile. 0 if anything was changed, else -errno.
int clinux_other_hasten(pid_t tid, bool realtime, struct clinux_scheduling *before);
void clinux_other_restore(pid_t tid, const struct clinux_scheduling *before);
pid_t clinux_gettid(void);
// Lets `clinux_thread_wake` interrupt the calling thread's blocking system calls with EINTR. 0 or -errno.
int clinux_thread_allow_wake(void);
// Interrupts a blocking system call of a thread of this process. No effect on a thread that is in none. 0 or -errno.
int clinux_thread_wake(pid_t tid);
int clinux_set_thread_name(const char *name);
// Waits for a semaphore until a time of CLOCK_MONOTONIC in nanoseconds, see sem_clockwait(3). 0, -ETIMEDOUT or -EINTR.
int clinux_semaphore_wait(sem_t *semaphore, long long until);
// 64 bits of the kernel's clock, CLOCK_REALTIME or CLOCK_MONOTONIC, in nanoseconds.
long long clinux_clock_realtime(void);
long long clinux_clock_monotonic(void);

// The calling thread's worker. Initial-exec, so that a read costs one instruction.
extern __thread void *clinux_own_worker __attribute__((tls_model("initial-exec")));
static inline void *clinux_worker(void) { return clinux_own_worker; }
static inline void clinux_set_worker(void *worker) { clinux_own_worker = worker; }

// The identity that this thread last took on.
struct clinux_thread_identity { uid_t uid; gid_t gid; mode_t umask; bool keeps_set_id, has_groups; };
extern __thread struct clinux_thread_identity clinux_own_identity __attribute__((tls_model("initial-exec")));
static inline struct clinux_thread_identity clinux_identity(void) { return clinux_own_identity; }
static inline void clinux_set_identity(struct clinux_thread_identity identity) { clinux_own_identity = identity; }

// How many locks this thread holds.
extern __thread unsigned clinux_own_locks __attribute__((tls_model("initial-exec")));
static inline void clinux_lock_acquired(void) { clinux_own_locks++; }
static inline void clinux_lock_released(void) { clinux_own_locks--; }
// Installs `handler` for Swift traps (SIGILL or SIGTRAP raised by an instruction) on threads that hold no lock. It runs on the
// trapping thread, which is parked for ever if it returns true. In every other case the process ends as usual. Returns 0 or -errno.
int clinux_trap_install(bool (*handler)(void));
// Unblocks these signals in the calling thread: a blocked one would end the process.
void clinux_trap_allow(void);
