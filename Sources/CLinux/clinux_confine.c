#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "CLinux.h"

int clinux_capabilities_keep(uint64_t kept) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    // While CAP_SETPCAP is there. A capability that the kernel does not know is past the last one.
    for (int capability = 0; capability < 64; capability++) {
        if (kept >> capability & 1) continue;
        int is_set = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (is_set < 0) break;
        if (is_set && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == -1 && errno != EPERM) return -errno;
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == -1 && errno != EINVAL) return -errno;
    if (syscall(SYS_capget, &header, data) == -1) return -errno;
    for (int half = 0; half < 2; half++) {
        data[half].effective &= (uint32_t)(kept >> (32 * half));
        data[half].permitted &= (uint32_t)(kept >> (32 * half));
        data[half].inheritable = 0;
    }
    return syscall(SYS_capset, &header, data) == -1 ? -errno : 0;
}

int clinux_capability_drop(int capability) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) == -1) return -errno;
    struct __user_cap_data_struct *half = &data[capability / 32];
    __u32 rest = ~((__u32)1 << (capability % 32));
    half->effective &= rest;
    half->permitted &= rest;
    half->inheritable &= rest;
    return syscall(SYS_capset, &header, data) == -1 ? -errno : 0;
}

int clinux_no_new_privileges(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ? -errno : 0; }
