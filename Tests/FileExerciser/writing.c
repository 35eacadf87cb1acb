// Ways to write, each repeated in the model.
#include "exerciser.h"
#include <sys/mman.h>
#include <sys/uio.h>

static void write_plain(struct exerciser *e) {
    size_t offset, length;
    choose_write(e, &offset, &length);
    note(e, "pwrite", offset, length);
    if (pwrite(e->fd, e->buffer, length, (off_t)offset) != (ssize_t)length) fail_errno(e, "pwrite");
    wrote(e, e->buffer, offset, length);
}

static void write_direct(struct exerciser *e) {
    if (e->direct_fd < 0) return;
    size_t offset, length;
    choose_write(e, &offset, &length);
    offset &= ~(size_t)(BLOCK - 1);
    length = (length + BLOCK - 1) & ~(size_t)(BLOCK - 1);
    if (offset + length > e->limit) return;
    memcpy(e->aligned, e->buffer, length);
    note(e, "pwrite O_DIRECT", offset, length);
    if (pwrite(e->direct_fd, e->aligned, length, (off_t)offset) != (ssize_t)length) fail_errno(e, "pwrite O_DIRECT");
    wrote(e, e->aligned, offset, length);
}

static void write_mapped(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    note(e, "write by mmap", offset, length);
    size_t page = offset & ~(size_t)(BLOCK - 1), span = length + offset - page;
    unsigned char *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, (off_t)page);
    if (map == MAP_FAILED) fail_errno(e, "mmap");
    for (size_t i = 0; i < length; i++) e->buffer[i] = (unsigned char)((e->operation * 37u) ^ (offset + i)) | 1;
    memcpy(map + (offset - page), e->buffer, length);
    if (draw(e, 3) == 0 && msync(map, span, MS_SYNC)) fail_errno(e, "msync");
    if (munmap(map, span)) fail_errno(e, "munmap");
    wrote(e, e->buffer, offset, length);
}

// Changes of a private mapping must not reach the file.
static void write_private(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    note(e, "write to a private mapping", offset, length);
    size_t page = offset & ~(size_t)(BLOCK - 1), span = length + offset - page;
    unsigned char *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE, e->fd, (off_t)page);
    if (map == MAP_FAILED) fail_errno(e, "mmap");
    memset(map + (offset - page), 0xEE, length);
    if (munmap(map, span)) fail_errno(e, "munmap");
}

static void append(struct exerciser *e) {
    size_t offset, length;
    choose_write(e, &offset, &length);
    if (length > e->limit - e->size) length = e->limit - e->size;
    if (length > 5000) length = 5000;
    if (length == 0) return;
    note(e, "append", e->size, length);
    if (write(e->append_fd, e->buffer, length) != (ssize_t)length) fail_errno(e, "append");
    wrote(e, e->buffer, e->size, length);
}

static void write_vector(struct exerciser *e) {
    size_t offset, length;
    choose_write(e, &offset, &length);
    note(e, "pwritev", offset, length);
    struct iovec parts[2] = {{e->buffer, length / 2}, {e->buffer + length / 2, length - length / 2}};
    if (pwritev(e->fd, parts, 2, (off_t)offset) != (ssize_t)length) fail_errno(e, "pwritev");
    wrote(e, e->buffer, offset, length);
}

static void write_synchronous(struct exerciser *e) {
    size_t offset, length;
    choose_write(e, &offset, &length);
    note(e, "pwritev2 RWF_DSYNC", offset, length);
    struct iovec part = {e->buffer, length};
    if (pwritev2(e->fd, &part, 1, (off_t)offset, RWF_DSYNC) != (ssize_t)length) fail_errno(e, "pwritev2");
    wrote(e, e->buffer, offset, length);
}

static void cut(struct exerciser *e) {
    size_t size = draw(e, 3) ? draw(e, e->size + 1) : draw(e, e->limit + 1);
    note(e, "ftruncate", size, 0);
    if (draw(e, 2) ? ftruncate(e->fd, (off_t)size) : truncate(e->path, (off_t)size)) fail_errno(e, "truncate");
    resized(e, size);
}

static void empty(struct exerciser *e) {
    note(e, "open O_TRUNC", 0, 0);
    int fd = open(e->path, O_RDWR | O_TRUNC | O_CLOEXEC);
    if (fd < 0) fail_errno(e, "open O_TRUNC");
    close(fd);
    resized(e, 0);
}

struct operation changes[] = {
    {"pwrite", write_plain, 10, false}, {"O_DIRECT write", write_direct, 5, false}, {"mmap write", write_mapped, 7, false},
    {"private", write_private, 1, false}, {"append", append, 4, false}, {"pwritev", write_vector, 2, false},
    {"RWF_DSYNC", write_synchronous, 1, false}, {"truncate", cut, 5, false}, {"O_TRUNC", empty, 1, false},
    {NULL, NULL, 0, false},
};
