// Giving up rights: see capabilities(7), prctl(2).
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Limits the calling thread, and threads it starts later, to the capabilities in the mask `kept`. No exec brings the others back.
// Returns 0 or -errno.
int clinux_capabilities_keep(uint64_t kept);
// Drops one capability of the calling thread, and of threads it starts later, for good. Returns 0 or -errno.
int clinux_capability_drop(int capability);
// Sets no_new_privs: exec gives no rights (set-id bits, file capabilities) to the calling thread and threads it starts later.
// Returns 0 or -errno.
int clinux_no_new_privileges(void);

// Gives the calling thread, and programs it starts later, a new empty session keyring, see keyctl(2). Returns 0 or -errno: -EDQUOT
// when the user has too many keys, -ENOSYS where the kernel has no keyrings.
int clinux_session_keyring_leave(void);
// Keeps the calling thread, and programs it starts later, from connecting to abstract sockets outside (landlock(7)), and sets
// no_new_privs. Returns 0 or -errno: -ENOSYS or -EOPNOTSUPP where the kernel cannot (before Linux 6.12).
int clinux_abstract_sockets_leave(void);

// Changes root to a user (not root) without capabilities, for good, and sets no_new_privs. Other processes of that user can neither
// trace this one nor open its descriptors (PR_SET_DUMPABLE). Call it before a second thread exists. Returns 0 or -errno.
int clinux_become_user(uid_t user, gid_t group, const gid_t *groups, size_t count);
// Sets no_new_privs and changes root to nobody, without groups. Call it before a second thread exists. Returns 0 or -errno.
int clinux_become_nobody(void);
