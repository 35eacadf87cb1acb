#include "probe.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

// The smallest ring that works, by raw system calls, with one request at a time. The read
// descriptor is registered with it.
static struct {
    bool tried;
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *results;
} ring = {.fd = -1};

static unsigned char buffer[PAGE];

static void open_ring(struct probe *p) {
    ring.tried = true;
    struct io_uring_params parameters = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (fd < 0) return;
    size_t submission = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    size_t completion = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    char *sq = mmap(NULL, submission, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, completion, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, parameters.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                        fd, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || ring.entries == MAP_FAILED) return;
    ring.sq_tail = (unsigned *)(sq + parameters.sq_off.tail);
    ring.sq_mask = (unsigned *)(sq + parameters.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(sq + parameters.sq_off.array);
    ring.cq_head = (unsigned *)(cq + parameters.cq_off.head);
    ring.cq_tail = (unsigned *)(cq + parameters.cq_off.tail);
    ring.cq_mask = (unsigned *)(cq + parameters.cq_off.ring_mask);
    ring.results = (struct io_uring_cqe *)(cq + parameters.cq_off.cqes);
    int descriptors[2] = {p->read_fd, p->write_fd};
    if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_FILES, descriptors, 2)) return;
    ring.fd = fd;
}

static int submit(struct probe *p, struct io_uring_sqe request, int *value) {
    if (!ring.tried) open_ring(p);
    if (ring.fd < 0) return SKIPPED;
    unsigned tail = *ring.sq_tail, slot = tail & *ring.sq_mask;
    ring.entries[slot] = request;
    ring.sq_array[slot] = slot;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return errno;
    unsigned head = *ring.cq_head;
    if (head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) return WRONG;
    *value = ring.results[head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    return *value < 0 ? -*value : DONE;
}
static struct io_uring_sqe transfer(int code, int fd, int flags) {
    return (struct io_uring_sqe){.opcode = (__u8)code, .fd = fd, .addr = (uintptr_t)buffer, .len = PAGE, .flags = (__u8)flags};
}
static int read_with(struct probe *p, int fd, int flags) {
    int n = 0;
    int result = submit(p, transfer(IORING_OP_READ, fd, flags), &n);
    return result == DONE ? check_pattern(buffer, n, 0) : result;
}
static int write_with(struct probe *p, int fd, int flags) {
    int n;
    for (size_t i = 0; i < PAGE; i++) buffer[i] = pattern(i);
    return submit(p, transfer(IORING_OP_WRITE, fd, flags), &n);
}
static int do_read(struct probe *p) { return read_with(p, p->read_fd, 0); }
static int do_read_async(struct probe *p) { return read_with(p, p->read_fd, IOSQE_ASYNC); }
static int do_read_registered(struct probe *p) { return read_with(p, 0, IOSQE_FIXED_FILE); }
static int do_write(struct probe *p) { return write_with(p, p->write_fd, 0); }
static int do_write_registered(struct probe *p) { return write_with(p, 1, IOSQE_FIXED_FILE); }
static int do_fsync(struct probe *p) {
    int n;
    return submit(p, (struct io_uring_sqe){.opcode = IORING_OP_FSYNC, .fd = p->write_fd}, &n);
}
static int do_openat(struct probe *p) {
    int n;
    struct io_uring_sqe request = {.opcode = IORING_OP_OPENAT, .fd = p->dir_fd, .addr = (uintptr_t) "read", .open_flags = O_RDONLY};
    int result = submit(p, request, &n);
    if (result == DONE) close(n);
    return result;
}
static int do_statx(struct probe *p) {
    int n;
    struct statx sx;
    struct io_uring_sqe request = {
        .opcode = IORING_OP_STATX, .fd = p->dir_fd, .addr = (uintptr_t) "read", .len = STATX_BASIC_STATS, .off = (uintptr_t)&sx};
    return submit(p, request, &n);
}

static int with_aio(int fd, int code) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context)) return SKIPPED;
    for (size_t i = 0; i < PAGE; i++) buffer[i] = pattern(i);
    struct iocb block = {
        .aio_lio_opcode = (__u16)code, .aio_fildes = (__u32)fd, .aio_buf = (uintptr_t)buffer, .aio_nbytes = PAGE};
    struct iocb *list[] = {&block};
    struct io_event event;
    int result = DONE;
    if (syscall(SYS_io_submit, context, 1, list) != 1) result = errno;
    else if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) result = errno;
    else if (event.res < 0) result = (int)-event.res;
    syscall(SYS_io_destroy, context);
    return result;
}
static int do_aio_read(struct probe *p) { return with_aio(p->read_fd, IOCB_CMD_PREAD); }
static int do_aio_write(struct probe *p) { return with_aio(p->write_fd, IOCB_CMD_PWRITE); }

const struct access ring_accesses[] = {
    {"fd-read", "io_uring-read", AFTER_REFUSED, false, do_read},
    {"fd-read", "io_uring-read-async", AFTER_REFUSED, false, do_read_async},
    {"io_uring-file", "io_uring-read", AFTER_REFUSED, false, do_read_registered},
    {"fd-write", "io_uring-write", AFTER_REFUSED, true, do_write},
    {"io_uring-file", "io_uring-write", AFTER_REFUSED, true, do_write_registered},
    {"fd-write", "io_uring-fsync", AFTER_REFUSED, false, do_fsync},
    {"dirfd", "io_uring-openat", AFTER_REFUSED, false, do_openat},
    {"dirfd", "io_uring-statx", AFTER_REFUSED, false, do_statx},
    {"fd-read", "io_submit-read", AFTER_REFUSED, false, do_aio_read},
    {"fd-write", "io_submit-write", AFTER_REFUSED, true, do_aio_write},
    {NULL, NULL, NULL, false, NULL},
};
