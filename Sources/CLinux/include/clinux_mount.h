#pragma once
#include <stdint.h>

// The number of the mount that `fd` was opened through, which no other mount will ever have (STATX_MNT_ID_UNIQUE, Linux 6.8). No
// filesystem is asked. -ENOSYS where the kernel has no such numbers.
int clinux_mount_number(int fd, uint64_t *number);
// Whether the mount of that number is in this process's mount namespace: 1 or 0 (statmount(2), Linux 6.8). No filesystem is asked.
// A negative error number when the kernel does not say.
int clinux_mount_is_there(uint64_t number);
