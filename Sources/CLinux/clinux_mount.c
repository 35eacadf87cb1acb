#include "clinux_mount.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// <linux/mount.h> of Linux 6.8, which libc6-dev does not bring yet.
#define UNIQUE_MOUNT_ID 0x00004000U // STATX_MNT_ID_UNIQUE
#define MOUNT_BASIC 0x00000002U     // STATMOUNT_MNT_BASIC
#ifndef SYS_statmount
#define SYS_statmount 457
#endif
struct mount_request { uint32_t size, spare; uint64_t id, mask; };

int clinux_unique_mount_id(int fd, uint64_t *out) {
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, UNIQUE_MOUNT_ID, &x) == -1) return -errno;
    if (!(x.stx_mask & UNIQUE_MOUNT_ID)) return -ENOSYS;
    *out = x.stx_mnt_id;
    return 0;
}

int clinux_has_mount(uint64_t unique_id) {
    struct mount_request request = {.size = sizeof request, .id = unique_id, .mask = MOUNT_BASIC};
    uint64_t answer[128];
    if (syscall(SYS_statmount, &request, answer, sizeof answer, 0) == 0) return 1;
    return errno == ENOENT ? 0 : -errno;
}
