#pragma once
#include <stdint.h>

// The UUID of the filesystem that `fd` (not O_PATH) lies on, by the ioctl of its own: ext4, xfs, btrfs. They answer on kernels
// that FS_IOC_GETFSUUID (6.9) is missing from. -ENOTTY where there is none.
int clinux_fs_uuid_by_type(int fd, uint8_t out[16]);
