#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "CGrantSystem.h"
#include "clinux_call.h"

// Linux 5.19: a signal does not end a call that was received, except a deadly one.
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
// Linux 6.6: the two processes use one processor in turn.
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

// Later kernels may have larger structures, and write all of them.
enum { LARGEST = 512 };

int clinux_filter_load(const void *instructions, size_t size) {
    struct seccomp_notif_sizes sizes;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == -1) return -errno;
    if (sizes.seccomp_notif > LARGEST || sizes.seccomp_notif_resp > LARGEST) return -EOPNOTSUPP;
    size_t count = size / sizeof(struct sock_filter);
    if (count > BPF_MAXINSNS) return -EINVAL;
    struct sock_fprog program = {.len = (unsigned short)count, .filter = (struct sock_filter *)(uintptr_t)instructions};
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (listener == -1 && errno == EINVAL) {
        listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    }
    if (listener == -1) return -errno;
    (void)ioctl((int)listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    return (int)listener;
}

int clinux_call_wait(int listener) {
    struct pollfd item = {.fd = listener, .events = POLLIN};
    int result = RETRY(poll(&item, 1, -1));
    return result < 0 ? result : (item.revents & POLLIN) != 0;
}

int clinux_call_receive(int listener, struct clinux_call *out) {
    union {
        struct seccomp_notif call;
        char space[LARGEST];
    } buffer;
    memset(&buffer, 0, sizeof buffer);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &buffer) == -1) return -errno;
    out->id = buffer.call.id;
    out->thread = (int32_t)buffer.call.pid;
    out->number = buffer.call.data.nr;
    memcpy(out->arguments, buffer.call.data.args, sizeof out->arguments);
    return 0;
}

int clinux_call_waits(int listener, uint64_t id) { return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0; }

int clinux_call_continue(int listener, uint64_t id) {
    union {
        struct seccomp_notif_resp reply;
        char space[LARGEST];
    } buffer;
    memset(&buffer, 0, sizeof buffer);
    buffer.reply.id = id;
    buffer.reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &buffer) == -1 ? -errno : 0;
}
