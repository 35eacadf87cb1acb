#pragma once
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Per-thread identity by raw system calls: glibc's wrappers change every thread of the process and
// are banned. Each call changes the calling thread alone and returns 0 or -errno.
int clinux_thread_unshare_fs(void);
int clinux_thread_setfsuid(uid_t uid);
int clinux_thread_setfsgid(gid_t gid);
int clinux_thread_setgroups(const gid_t *groups, size_t count);
mode_t clinux_thread_umask(mode_t mask);
// SECBIT_NO_SETUID_FIXUP for the process: a change of fsuid then keeps capabilities.
//
// Call it before any thread is made.
int clinux_keep_capabilities_across_setuid(void);
// Whether the calling thread has a capability in its effective set.
bool clinux_has_capability(int capability);
// Adds a permitted capability to this thread's effective set, or removes it.
int clinux_thread_use_capability(int capability, bool use);
// Sets the calling thread's effective capabilities to `allowed`, as far as they are permitted.
//
// One bit each. Stores the old set in `before` (or NULL), which another call restores.
int clinux_thread_limit_capabilities(uint64_t allowed, uint64_t *before);
// Removes capabilities from the calling thread's effective set, then adds permitted ones. One bit
// each.
//
// Stores the old set in `before`, which `clinux_thread_limit_capabilities` restores.
int clinux_thread_change_capabilities(uint64_t dropped, uint64_t raised, uint64_t *before);
// Gives the process a proc(5) mount of its own, for systems whose /proc hides threads (hidepid=).
//
// The functions below use it. Returns 0 or -errno. Needs CAP_SYS_ADMIN, and Linux 5.8, since when
// mounts of proc have options of their own. Call it before there are threads.
int clinux_open_own_proc(void);
// The effective capabilities of another thread, one bit each.
//
// Returns 0 if they cannot be read, and if the thread is in another user namespace: its
// capabilities there are not privileges here.
uint64_t clinux_other_capabilities(pid_t tid);
// The same for changes of a file with this owner and group.
//
// A thread in another user namespace has four of them there over files whose owner and group that
// namespace has numbers for: CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER (for which the owner suffices)
// and CAP_FSETID, as the kernel decides (capabilities(7), capable_wrt_inode_uidgid).
uint64_t clinux_other_capabilities_over(pid_t tid, uid_t uid, gid_t gid);
// Whether a thread's user namespace has a number for a group.
bool clinux_other_maps_group(pid_t tid, gid_t group);
// Whether a group is among another thread's supplementary groups.
//
// False if that cannot be read, or if the group is past the first few hundred.
bool clinux_other_is_in_group(pid_t tid, gid_t group);
// Gives the calling thread the supplementary groups of another one.
//
// Only the first few hundred, and none if they cannot be read.
int clinux_thread_take_groups(pid_t tid);
// The state of any thread, a letter as in /proc/TID/status.
//
// Returns 0 if there is no such thread, '?' if its state is not visible.
char clinux_other_state(pid_t tid);
// The processor time of any thread in nanoseconds.
//
// Returns -1 if there is no such thread, or if it is not visible.
long long clinux_other_runtime(pid_t tid);
// How a thread is scheduled.
struct clinux_scheduling {
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } attributes;
    unsigned char processors[1024];
    bool has_processors;
};
// Schedules any thread before other programs, on every processor that it may use.
//
// It runs as SCHED_FIFO if `realtime`, else with the lowest nice value. Settings that the caller
// may not change are unchanged. Stores the old settings for `clinux_other_restore`, which keeps
// changes that other processes have made meanwhile. Returns 0 if anything was changed, else -errno.
int clinux_other_hasten(pid_t tid, bool realtime, struct clinux_scheduling *before);
void clinux_other_restore(pid_t tid, const struct clinux_scheduling *before);
pid_t clinux_gettid(void);
// Lets `clinux_thread_wake` interrupt the calling thread's blocking system calls with EINTR.
//
// Returns 0 or -errno.
int clinux_thread_allow_wake(void);
// Interrupts a blocking system call of a thread of this process.
//
// No effect on a thread that is in none. Returns 0 or -errno.
int clinux_thread_wake(pid_t tid);
int clinux_set_thread_name(const char *name);
// Waits for a semaphore until a time of CLOCK_MONOTONIC in nanoseconds.
//
// See sem_clockwait(3). Returns 0, -ETIMEDOUT or -EINTR.
int clinux_semaphore_wait(sem_t *semaphore, long long until);
// 64 bits of the kernel's clock, CLOCK_REALTIME or CLOCK_MONOTONIC, in nanoseconds.
long long clinux_clock_realtime(void);
long long clinux_clock_monotonic(void);

// The calling thread's worker. Initial-exec, so that a read costs one instruction.
extern __thread void *clinux_own_worker __attribute__((tls_model("initial-exec")));
static inline void *clinux_worker(void) { return clinux_own_worker; }
static inline void clinux_set_worker(void *worker) { clinux_own_worker = worker; }

// The identity that this thread assumed last.
struct clinux_thread_identity { uid_t uid; gid_t gid; mode_t umask; bool keeps_set_id, has_groups; };
extern __thread struct clinux_thread_identity clinux_own_identity __attribute__((tls_model("initial-exec")));
static inline struct clinux_thread_identity clinux_identity(void) { return clinux_own_identity; }
static inline void clinux_set_identity(struct clinux_thread_identity identity) { clinux_own_identity = identity; }

// How many locks this thread holds.
extern __thread unsigned clinux_own_locks __attribute__((tls_model("initial-exec")));
static inline void clinux_lock_acquired(void) { clinux_own_locks++; }
static inline void clinux_lock_released(void) { clinux_own_locks--; }
// Installs `handler` for Swift traps on threads that hold no lock. Returns 0 or -errno.
//
// An instruction raises SIGILL or SIGTRAP. The handler runs on the trapping thread, which is parked
// forever if it returns true. In every other case the process ends as usual.
int clinux_trap_install(bool (*handler)(void));
// Unblocks these signals in the calling thread: a blocked one would end the process.
void clinux_trap_allow(void);
