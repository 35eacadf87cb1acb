#include "clinux_volume.h"
#include <errno.h>
#include <linux/btrfs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

// EXT4_IOC_GETFSUUID (6.0) and XFS_IOC_FSGEOMETRY_V1, for which libc6-dev installs no header.
struct ext4_fsuuid { uint32_t length, flags; uint8_t uuid[16]; };
struct xfs_geometry {
    uint32_t sizes[8];
    uint64_t blocks[3];
    uint64_t log_start;
    uint8_t uuid[16];
    uint32_t widths[2];
    int32_t version;
    uint32_t flags, log_sector, rt_sector, dir_block;
};
_Static_assert(sizeof(struct xfs_geometry) == 112 && __builtin_offsetof(struct xfs_geometry, uuid) == 64, "as the kernel has it");

int clinux_fs_uuid_by_type(int fd, uint8_t out[16]) {
    struct statfs s;
    if (fstatfs(fd, &s) == -1) return -errno;
    switch ((uint32_t)s.f_type) {
    case 0xEF53: {
        struct ext4_fsuuid u = {.length = 16};
        if (ioctl(fd, _IOR('f', 44, uint64_t) /* of a struct without its flexible array */, &u) == -1) return -errno;
        if (u.length != 16) return -ENOTTY;
        memcpy(out, u.uuid, 16);
        return 0;
    }
    case 0x58465342: {
        struct xfs_geometry g;
        if (ioctl(fd, _IOR('X', 100, struct xfs_geometry), &g) == -1) return -errno;
        memcpy(out, g.uuid, 16);
        return 0;
    }
    case 0x9123683E: {
        struct btrfs_ioctl_fs_info_args info;
        memset(&info, 0, sizeof info);
        if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) == -1) return -errno;
        memcpy(out, info.fsid, 16);
        return 0;
    }
    default: return -ENOTTY;
    }
}
