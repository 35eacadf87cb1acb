// Giving up rights: see capabilities(7), prctl(2).
#pragma once
#include <stdint.h>

// Leaves the calling thread, and those that it makes from now on, the capabilities of the mask `kept` that it has; none of the others
// can come back, by an exec either. Returns 0 or -errno.
int clinux_capabilities_keep(uint64_t kept);
// Takes one capability from the calling thread, and those that it makes from now on, for good. Returns 0 or -errno.
int clinux_capability_drop(int capability);
// From now on an exec gives no rights (set-id bits, file capabilities) to the calling thread and those that it makes. Returns 0 or -errno.
int clinux_no_new_privileges(void);

// Gives the calling thread, and the programs that it starts from now on, an empty session keyring in place of the one it has, see keyctl(2). Returns 0 or
// -errno: -EDQUOT when the user has too many keys, -ENOSYS where the kernel has none.
int clinux_session_keyring_leave(void);
// From now on the calling thread, and the programs that it starts, cannot connect to abstract sockets of anybody outside, see landlock(7); and no exec gives
// rights. Returns 0 or -errno: -ENOSYS or -EOPNOTSUPP where the kernel has no such thing (before Linux 6.12).
int clinux_abstract_sockets_leave(void);

// The process can get no rights by an exec from now on, and root's becomes nobody's, without groups. To be called before there is a second thread. Returns 0 or -errno.
int clinux_become_nobody(void);
