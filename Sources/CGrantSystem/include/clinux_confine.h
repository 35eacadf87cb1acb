// Giving up rights: see capabilities(7), prctl(2).
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Limits the calling thread to the capabilities in the mask `kept`.
//
// Later threads inherit the limit. No exec restores the others. Returns 0 or -errno.
int clinux_capabilities_keep(uint64_t kept);
// Drops one capability of the calling thread permanently. Returns 0 or -errno.
//
// Later threads inherit that.
int clinux_capability_drop(int capability);
// Sets no_new_privs: exec gives no rights (set-id bits, file capabilities).
//
// Applies to the calling thread and threads it starts later. Returns 0 or -errno.
int clinux_no_new_privileges(void);

// Gives the calling thread a new empty session keyring, see keyctl(2).
//
// Programs it starts later get it too. Returns 0 or -errno: -EDQUOT if the user has too many keys,
// -ENOSYS if the kernel has no keyrings.
int clinux_session_keyring_leave(void);
// Prevents connections to abstract sockets outside (landlock(7)), and sets no_new_privs.
//
// Applies to the calling thread and programs it starts later. Returns 0 or -errno: -ENOSYS or
// -EOPNOTSUPP if the kernel cannot (before Linux 6.12).
int clinux_abstract_sockets_leave(void);

// Changes root permanently to a user without capabilities, and sets no_new_privs.
//
// The user must not be root. Other processes of that user can neither trace this one nor open its
// descriptors (PR_SET_DUMPABLE). Call it before a second thread exists. Returns 0 or -errno.
int clinux_become_user(uid_t user, gid_t group, const gid_t *groups, size_t count);
// Sets no_new_privs and changes root to user 65534, without groups.
//
// Call it before a second thread exists. Returns 0 or -errno.
int clinux_become_nobody(void);
