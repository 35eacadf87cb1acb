#pragma once
#include <stdint.h>

// The number of the mount that `fd` (O_PATH or not) was reached through, as statx(2) has it with STATX_MNT_ID_UNIQUE: never used
// again, unlike the one of /proc/self/mountinfo. The filesystem is not asked. -ENOSYS before Linux 6.8.
int clinux_unique_mount_id(int fd, uint64_t *out);
// Whether a mount of that number is in this process's namespace, by statmount(2): 1 or 0. -ENOSYS before Linux 6.8, -EPERM.
int clinux_has_mount(uint64_t unique_id);
