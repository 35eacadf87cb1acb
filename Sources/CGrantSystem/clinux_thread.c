#include "clinux_thread.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clinux_thread_unshare_fs(void) { return unshare(CLONE_FS) == -1 ? -errno : 0; }

// setfsuid(2) reports nothing. The second call reads back the present value.
int clinux_thread_setfsuid(uid_t uid) {
    syscall(SYS_setfsuid, uid);
    return (uid_t)syscall(SYS_setfsuid, (uid_t)-1) == uid ? 0 : -EPERM;
}
int clinux_thread_setfsgid(gid_t gid) {
    syscall(SYS_setfsgid, gid);
    return (gid_t)syscall(SYS_setfsgid, (gid_t)-1) == gid ? 0 : -EPERM;
}
int clinux_thread_setgroups(const gid_t *groups, size_t count) {
    return syscall(SYS_setgroups, count, groups) == -1 ? -errno : 0;
}
mode_t clinux_thread_umask(mode_t mask) { return umask(mask); }
int clinux_keep_capabilities_across_setuid(void) {
    int bits = prctl(PR_GET_SECUREBITS);
    return bits < 0 || prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP) == -1 ? -errno : 0;
}
bool clinux_has_capability(int capability) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capget, &header, data) == -1) return false;
    return (data[capability / 32].effective >> (capability % 32)) & 1;
}
int clinux_thread_limit_capabilities(uint64_t allowed, uint64_t *before) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capget, &header, data) == -1) return -errno;
    if (before != NULL) *before = (uint64_t)data[1].effective << 32 | data[0].effective;
    data[0].effective = data[0].permitted & (__u32)allowed;
    data[1].effective = data[1].permitted & (__u32)(allowed >> 32);
    return syscall(SYS_capset, &header, data) == -1 ? -errno : 0;
}
int clinux_thread_change_capabilities(uint64_t dropped, uint64_t raised, uint64_t *before) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    if (syscall(SYS_capget, &header, data) == -1) return -errno;
    *before = (uint64_t)data[1].effective << 32 | data[0].effective;
    data[0].effective = (data[0].effective & ~(__u32)dropped) | (data[0].permitted & (__u32)raised);
    data[1].effective = (data[1].effective & ~(__u32)(dropped >> 32)) | (data[1].permitted & (__u32)(raised >> 32));
    return syscall(SYS_capset, &header, data) == -1 ? -errno : 0;
}
int clinux_thread_use_capability(int capability, bool use) {
    uint64_t bit = (uint64_t)1 << capability, before;
    return clinux_thread_change_capabilities(use ? 0 : bit, use ? bit : 0, &before);
}
// The root of a proc mount of the process's own, or -1 for /proc. Written once, before there are
// threads.
static int own_proc = -1;
int clinux_open_own_proc(void) {
    int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC), root = -1;
    if (fs == -1) return -errno;
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        root = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
    int result = root == -1 ? -errno : 0;
    close(fs);
    if (root != -1) own_proc = root;
    return result;
}
// -1 if the thread does not exist, or is not visible.
static int open_of_thread(pid_t tid, const char *file) {
    char path[40];
    snprintf(path, sizeof path, "%s%d/%s", own_proc == -1 ? "/proc/" : "", (int)tid, file);
    return tid > 0 ? openat(own_proc, path, O_RDONLY | O_CLOEXEC) : -1;
}
// The text behind `field` in /proc/TID/status. NULL if it cannot be read.
//
// `field` begins a line.
static const char *status_of(pid_t tid, const char *field, char text[4096]) {
    int fd = open_of_thread(tid, "status");
    if (fd == -1) return NULL;
    ssize_t length = read(fd, text, 4095);
    close(fd);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, field);
    return line == NULL ? NULL : line + strlen(field);
}
static ssize_t read_small(int fd, char text[1024]) {
    ssize_t length = fd == -1 ? -1 : read(fd, text, 1024);
    if (fd != -1) close(fd);
    return length;
}
// This process's maps of users and groups, which never change once it has them.
static const char *const maps[] = {"uid_map", "gid_map"};
static char own_maps[2][1024];
static ssize_t own_lengths[2];
static pthread_once_t own_maps_read = PTHREAD_ONCE_INIT;
static void read_own_maps(void) {
    for (int i = 0; i < 2; i++) {
        char path[40];
        snprintf(path, sizeof path, "/proc/thread-self/%s", maps[i]);
        own_lengths[i] = read_small(open(path, O_RDONLY | O_CLOEXEC), own_maps[i]);
    }
}
// Whether a thread is in this process's user namespace.
//
// A thread in a user namespace of its own has every capability there, and none outside. Namespaces
// are distinguished by their maps (user_namespaces(7)), which every user may read. Reading
// /proc/PID/ns would take CAP_SYS_PTRACE. Only root of the first namespace can make the same maps as
// that namespace's, and programs such as systemd take a namespace with them for the first one.
static bool shares_user_namespace(pid_t tid) {
    char other[1024];
    pthread_once(&own_maps_read, read_own_maps);
    for (int i = 0; i < 2; i++) {
        if (own_lengths[i] <= 0 || read_small(open_of_thread(tid, maps[i]), other) != own_lengths[i]) return false;
        if (memcmp(own_maps[i], other, (size_t)own_lengths[i]) != 0) return false;
    }
    return true;
}
static uint64_t effective(pid_t tid) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, tid};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    // 0 would be the calling thread.
    if (tid <= 0 || syscall(SYS_capget, &header, data) == -1) return 0;
    return (uint64_t)data[1].effective << 32 | data[0].effective;
}
uint64_t clinux_other_capabilities(pid_t tid) {
    // First: a thread that enters a namespace of its own meanwhile has every capability there.
    uint64_t capabilities = effective(tid);
    return shares_user_namespace(tid) ? capabilities : 0;
}
// Whether a thread's user namespace has a number for an id of this process's namespace.
static bool has_mapping(pid_t tid, const char *map, uint32_t id) {
    enum { MOST_LINES = 340, LONGEST_LINE = 36 };
    char text[MOST_LINES * LONGEST_LINE + 1], *place = text;
    int fd = open_of_thread(tid, map);
    ssize_t length = 0, count = fd == -1 ? 0 : 1;
    while (count > 0 && length < (ssize_t)sizeof text - 1) {
        count = read(fd, text + length, sizeof text - 1 - (size_t)length);
        if (count > 0) length += count;
    }
    if (fd != -1) close(fd);
    text[length] = 0;
    // Each line has the first id inside, the first one outside, and how many there are.
    for (char *end = text; *place != 0; place = *end == '\n' ? end + 1 : end) {
        strtoul(place, &end, 10);
        unsigned long first = strtoul(end, &end, 10), ids = strtoul(end, &end, 10);
        // An id that this process's namespace has no number for is the highest one, which nobody has.
        if (first != UINT32_MAX && id != UINT32_MAX && id >= first && id - first < ids) return true;
        if (end == place) return false;
    }
    return false;
}
uint64_t clinux_other_capabilities_over(pid_t tid, uid_t uid, gid_t gid) {
    enum { CHANGE_OWNER = 1 << CAP_CHOWN, OWNER = 1 << CAP_FOWNER, SET_ID = 1 << CAP_FSETID };
    enum { ACCESS = 1 << CAP_DAC_OVERRIDE };
    uint64_t capabilities = effective(tid);
    if (shares_user_namespace(tid)) return capabilities;
    // Read after the capabilities. A thread that enters another namespace meanwhile has every
    // capability there, and a namespace below its own maps no more ids.
    if (!has_mapping(tid, "uid_map", uid)) return 0;
    return capabilities & (has_mapping(tid, "gid_map", gid) ? CHANGE_OWNER | ACCESS | OWNER | SET_ID : OWNER);
}
bool clinux_other_maps_group(pid_t tid, gid_t group) { return shares_user_namespace(tid) || has_mapping(tid, maps[1], group); }
bool clinux_other_is_in_group(pid_t tid, gid_t group) {
    char text[4096], *end;
    const char *place = status_of(tid, "\nGroups:\t", text);
    while (place != NULL && *place >= '0' && *place <= '9') {
        if (strtoul(place, &end, 10) == group && (*end == ' ' || *end == '\n')) return true;
        place = *end == ' ' ? end + 1 : end;
    }
    return false;
}
int clinux_thread_take_groups(pid_t tid) {
    char text[4096], *end;
    gid_t groups[512];
    size_t count = 0;
    const char *place = status_of(tid, "\nGroups:\t", text);
    while (place != NULL && *place >= '0' && *place <= '9' && count < sizeof groups / sizeof *groups) {
        gid_t group = (gid_t)strtoul(place, &end, 10);
        // A number that was cut off would be another group.
        if (*end == ' ' || *end == '\n') groups[count++] = group;
        place = *end == ' ' ? end + 1 : end;
    }
    return clinux_thread_setgroups(groups, count);
}
char clinux_other_state(pid_t tid) {
    char text[4096];
    // Called first, because it costs little. A hidden thread looks like a missing one.
    if (syscall(SYS_tkill, tid, 0) == -1 && errno == ESRCH) return 0;
    const char *state = status_of(tid, "\nState:\t", text);
    return state != NULL ? *state : '?';
}
long long clinux_other_runtime(pid_t tid) {
    char text[1024];
    ssize_t length = read_small(open_of_thread(tid, "schedstat"), text);
    if (length <= 0) return -1;
    text[length < 1023 ? length : 1023] = 0;
    return strtoll(text, NULL, 10);
}

enum { LOWEST_NICE = -20, LOWEST_REALTIME = 1, RESET_ON_FORK = 1 };
static bool same_scheduling(const struct clinux_scheduling *one, const struct clinux_scheduling *other) {
    return one->attributes.policy == other->attributes.policy && one->attributes.nice == other->attributes.nice &&
           one->attributes.priority == other->attributes.priority;
}
static int get_scheduling(pid_t tid, struct clinux_scheduling *scheduling) {
    memset(scheduling, 0, sizeof *scheduling);
    scheduling->attributes.size = sizeof scheduling->attributes;
    if (syscall(SYS_sched_getattr, tid, &scheduling->attributes, sizeof scheduling->attributes, 0) == -1) return -errno;
    return 0;
}
static void hastened(struct clinux_scheduling *scheduling, bool realtime) {
    scheduling->attributes.policy = realtime ? SCHED_FIFO : SCHED_OTHER;
    scheduling->attributes.nice = realtime ? 0 : LOWEST_NICE;
    scheduling->attributes.priority = realtime ? LOWEST_REALTIME : 0;
}
static bool is_time_shared(const struct clinux_scheduling *scheduling) {
    const uint32_t policy = scheduling->attributes.policy;
    return policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
}
int clinux_other_hasten(pid_t tid, bool realtime, struct clinux_scheduling *before) {
    int result = get_scheduling(tid, before);
    if (result != 0) return result;
    // A thread with a real-time policy does not wait for the programs that this could help against.
    if (!is_time_shared(before)) return -EINVAL;
    result = -EPERM;
    if (syscall(SYS_sched_getaffinity, tid, sizeof before->processors, before->processors) > 0) {
        unsigned char every[sizeof before->processors];
        memset(every, 0xff, sizeof every);
        before->has_processors = syscall(SYS_sched_setaffinity, tid, sizeof every, every) == 0;
        if (before->has_processors) result = 0;
    }
    struct clinux_scheduling wanted = *before;
    hastened(&wanted, realtime);
    // Processes that it starts meanwhile do not keep the priority.
    wanted.attributes.flags = RESET_ON_FORK;
    if (syscall(SYS_sched_setattr, tid, &wanted.attributes, 0) == 0) result = 0;
    return result;
}
// Whether a thread still has more than before.
//
// It may have changed its own settings, which takes no right if it lowers them.
static bool has_more(const struct clinux_scheduling *now, const struct clinux_scheduling *before) {
    if (!is_time_shared(now) || now->attributes.nice < before->attributes.nice) return true;
    return before->attributes.policy == SCHED_IDLE && now->attributes.policy != SCHED_IDLE;
}
void clinux_other_restore(pid_t tid, const struct clinux_scheduling *before) {
    struct clinux_scheduling now;
    if (get_scheduling(tid, &now) == 0) {
        bool is_ours = has_more(&now, before);
        for (int realtime = 0; realtime < 2; realtime++) {
            struct clinux_scheduling wanted = *before;
            hastened(&wanted, realtime);
            is_ours = is_ours || same_scheduling(&now, &wanted);
        }
        if (is_ours) {
            syscall(SYS_sched_setattr, tid, &before->attributes, 0);
        } else if ((now.attributes.flags ^ before->attributes.flags) & RESET_ON_FORK) {
            now.attributes.flags = (now.attributes.flags & ~(uint64_t)RESET_ON_FORK) | (before->attributes.flags & RESET_ON_FORK);
            syscall(SYS_sched_setattr, tid, &now.attributes, 0);
        }
    }
    if (before->has_processors) syscall(SYS_sched_setaffinity, tid, sizeof before->processors, before->processors);
}
pid_t clinux_gettid(void) { return (pid_t)syscall(SYS_gettid); }
// The handler does nothing: the kernel ends the interrupted system call (signal(7), no SA_RESTART).
static void on_wake(int number) { (void)number; }

int clinux_thread_allow_wake(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_wake;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    if (sigaction(SIGUSR2, &action, NULL) == -1) return -errno;
    return -pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int clinux_thread_wake(pid_t tid) { return syscall(SYS_tgkill, getpid(), tid, SIGUSR2) == -1 ? -errno : 0; }

int clinux_set_thread_name(const char *name) { return prctl(PR_SET_NAME, name) == -1 ? -errno : 0; }

static long long nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
long long clinux_clock_realtime(void) { return nanoseconds(CLOCK_REALTIME); }
long long clinux_clock_monotonic(void) { return nanoseconds(CLOCK_MONOTONIC); }

__thread void *clinux_own_worker __attribute__((tls_model("initial-exec")));
__thread struct clinux_thread_identity clinux_own_identity __attribute__((tls_model("initial-exec")));

int clinux_semaphore_wait(sem_t *semaphore, long long until) {
    struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    return sem_clockwait(semaphore, CLOCK_MONOTONIC, &time) == 0 ? 0 : -errno;
}
