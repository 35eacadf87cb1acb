// A listener for the system calls of other processes: seccomp_unotify(2).
#pragma once
#include <stddef.h>
#include <stdint.h>

// A call that waits for a reply.
struct clinux_call {
    uint64_t id;
    // The calling thread, as this process sees it.
    int32_t thread;
    int32_t number;
    uint64_t arguments[6];
};

// Loads a filter (struct sock_filter) into the calling thread, for it and the programs that it becomes.
//
// The thread needs no_new_privs. Returns a descriptor that gets the calls that the filter reports (SECCOMP_RET_USER_NOTIF), or
// -errno: -EBUSY if a filter of the thread has a listener already.
int clinux_filter_load(const void *instructions, size_t size);
// Waits for a call without limit. Returns 1 if one is there, 0 if no process has the filter any more, or -errno.
int clinux_call_wait(int listener);
// Takes the next call. Returns 0 or -errno: -ENOENT if its process was killed meanwhile.
int clinux_call_receive(int listener, struct clinux_call *out);
// Whether the call still waits, so that its thread is the same: 1 or 0.
int clinux_call_waits(int listener, uint64_t id);
// Lets the kernel carry the call out as it is. Returns 0 or -errno: -ENOENT if its process was killed meanwhile.
int clinux_call_continue(int listener, uint64_t id);
