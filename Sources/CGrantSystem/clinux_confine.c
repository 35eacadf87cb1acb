#include <errno.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "CGrantSystem.h"

int clinux_capabilities_keep(uint64_t kept) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    // While the thread has CAP_SETPCAP. A capability that the kernel does not know is past the last
    // one.
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

int clinux_session_keyring_leave(void) { return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) == -1 ? -errno : 0; }

int clinux_abstract_sockets_leave(void) {
    // <linux/landlock.h> of Linux 6.12: the numbers are the same on every architecture.
    enum { CREATE_RULESET = 444, RESTRICT_SELF = 446, CREATE_RULESET_VERSION = 1, SCOPE_ABSTRACT_UNIX_SOCKET = 1, FIRST_WITH_SCOPES = 6 };
    struct { uint64_t handled_access_fs, handled_access_net, scoped; } attributes = {.scoped = SCOPE_ABSTRACT_UNIX_SOCKET};
    long version = syscall(CREATE_RULESET, NULL, 0, CREATE_RULESET_VERSION);
    if (version == -1) return -errno;
    if (version < FIRST_WITH_SCOPES) return -EOPNOTSUPP;
    int rules = (int)syscall(CREATE_RULESET, &attributes, sizeof attributes, 0);
    if (rules == -1) return -errno;
    int result = clinux_no_new_privileges();
    if (result == 0 && syscall(RESTRICT_SELF, rules, 0) == -1) result = -errno;
    close(rules);
    return result;
}

int clinux_become_user(uid_t user, gid_t group, const gid_t *groups, size_t count) {
    int result = clinux_no_new_privileges();
    if (result != 0) return result;
    if (syscall(SYS_setgroups, count, groups) == -1 || syscall(SYS_setresgid, group, group, group) == -1) return -errno;
    // CAP_SETUID is needed again.
    if ((result = clinux_capabilities_keep((uint64_t)1 << CAP_SETUID)) != 0) return result;
    if (syscall(SYS_setresuid, user, user, user) == -1) return -errno;
    if ((result = clinux_capabilities_keep(0)) != 0) return result;
    // The kernel does that at a change of user, unless fs.suid_dumpable prevents it.
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1) return -errno;
    return syscall(SYS_setresuid, 0, 0, 0) == 0 ? -EPERM : 0;
}

int clinux_become_nobody(void) {
    // The highest number of the old 16 bits, which systems assign to the user `nobody`.
    const uid_t nobody = 65534;
    return geteuid() == 0 ? clinux_become_user(nobody, nobody, NULL, 0) : clinux_no_new_privileges();
}
