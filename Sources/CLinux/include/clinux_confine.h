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
