#include "clinux_mount.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// <linux/mount.h> and <linux/stat.h> of 6.8; older headers lack them.
#define MOUNT_ID_UNIQUE 0x4000U
#ifdef SYS_statmount
#define STATMOUNT_CALL SYS_statmount
#else
#define STATMOUNT_CALL 457
#endif

int clinux_mount_number(int fd, uint64_t *number) {
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, MOUNT_ID_UNIQUE, &x) < 0) return -errno;
    if (!(x.stx_mask & MOUNT_ID_UNIQUE)) return -ENOSYS;
    // stx_mnt_id follows stx_dev_minor in the kernel's struct; older headers call it spare.
    memcpy(number, (char *)&x + 0x90, sizeof *number);
    return 0;
}

int clinux_mount_is_there(uint64_t number) {
    // struct mnt_id_req in its first version, MNT_ID_REQ_SIZE_VER0.
    struct { uint32_t size, spare; uint64_t mount, parameter; } request = {24, 0, number, 0x2 /* STATMOUNT_MNT_BASIC */};
    // struct statmount without its strings.
    char answer[512] __attribute__((aligned(8)));
    if (syscall(STATMOUNT_CALL, &request, answer, sizeof answer, 0) == 0) return 1;
    return errno == ENOENT ? 0 : -errno;
}
