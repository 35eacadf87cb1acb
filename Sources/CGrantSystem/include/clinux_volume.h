#pragma once
#include <stdint.h>

// The UUID of the filesystem of `fd` (not O_PATH), by the ioctl of ext4, xfs or btrfs.
//
// These work on kernels without FS_IOC_GETFSUUID (before 6.9). Returns -ENOTTY for other types.
int clinux_fs_uuid_by_type(int fd, uint8_t out[16]);
