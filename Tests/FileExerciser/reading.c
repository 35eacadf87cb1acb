// Ways to read, each compared with the model.
#include "exerciser.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static void read_plain(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    note(e, "pread", offset, length);
    // Asks for more than the file has. The data must end at the end of the file.
    ssize_t count = pread(e->fd, e->buffer, length + BLOCK > e->limit ? length : length + BLOCK, (off_t)offset);
    if (count < 0) fail_errno(e, "pread");
    size_t there = e->size - offset, asked = length + BLOCK > e->limit ? length : length + BLOCK;
    if ((size_t)count != (asked < there ? asked : there)) fail(e, "pread gave another count");
    expect(e, "pread", e->buffer, offset, (size_t)count);
}

static void read_direct(struct exerciser *e) {
    size_t offset, length;
    if (e->direct_fd < 0 || !choose_read(e, &offset, &length)) return;
    offset &= ~(size_t)(BLOCK - 1);
    length = (length + BLOCK - 1) & ~(size_t)(BLOCK - 1);
    note(e, "pread O_DIRECT", offset, length);
    ssize_t count = pread(e->direct_fd, e->aligned, length, (off_t)offset);
    if (count < 0) fail_errno(e, "pread O_DIRECT");
    size_t there = e->size - offset;
    if ((size_t)count != (length < there ? length : there)) fail(e, "pread O_DIRECT gave another count");
    expect(e, "pread O_DIRECT", e->aligned, offset, (size_t)count);
}

static void read_mapped(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    note(e, "read by mmap", offset, length);
    size_t page = offset & ~(size_t)(BLOCK - 1);
    unsigned char *map = mmap(NULL, length + offset - page, PROT_READ, draw(e, 2) ? MAP_SHARED : MAP_PRIVATE, e->fd, (off_t)page);
    if (map == MAP_FAILED) fail_errno(e, "mmap");
    expect(e, "mapped bytes", map + (offset - page), offset, length);
    // The bytes behind the end in its page are zero.
    if (offset + length == e->size)
        for (size_t i = e->size; i & (BLOCK - 1); i++)
            if (map[i - page]) fail(e, "bytes behind the end in the last mapped page");
    if (munmap(map, length + offset - page)) fail_errno(e, "munmap");
}

static void read_vector(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    note(e, "preadv", offset, length);
    struct iovec parts[3] = {{e->buffer, length / 3}, {e->buffer + length / 3, length / 5}, {NULL, 0}};
    size_t done = length / 3 + length / 5;
    parts[2] = (struct iovec){e->buffer + done, length - done};
    ssize_t count = preadv(e->fd, parts, 3, (off_t)offset);
    if (count < 0) fail_errno(e, "preadv");
    if ((size_t)count != length) fail(e, "preadv gave another count");
    expect(e, "preadv", e->buffer, offset, length);
}

static void read_spliced(struct exerciser *e) {
    size_t offset, length;
    if (!choose_read(e, &offset, &length)) return;
    if (length > 32768) length = 32768;  // less than the size of a pipe
    note(e, "splice", offset, length);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) fail_errno(e, "pipe");
    off_t position = (off_t)offset;
    size_t done = 0;
    while (done < length) {
        size_t rest = length - done;
        ssize_t count = draw(e, 2) ? splice(e->fd, &position, ends[1], NULL, rest, 0) : sendfile(ends[1], e->fd, &position, rest);
        if (count <= 0) fail_errno(e, "splice or sendfile");
        ssize_t got = read(ends[0], e->buffer + done, (size_t)count);
        if (got != count) fail_errno(e, "read from the pipe");
        done += (size_t)count;
    }
    close(ends[0]);
    close(ends[1]);
    expect(e, "spliced bytes", e->buffer, offset, length);
}

// SEEK_HOLE never reports data as a hole. A reported hole reads as zeroes.
static void seek_hole(struct exerciser *e) {
    if (e->size == 0) return;
    off_t at = (off_t)draw(e, e->size);
    note(e, "SEEK_HOLE, SEEK_DATA", (size_t)at, 0);
    off_t data = lseek(e->fd, at, SEEK_DATA);
    if (data < 0 && errno != ENXIO) fail_errno(e, "SEEK_DATA");
    size_t end = data < 0 ? e->size : (size_t)data;
    for (size_t i = (size_t)at; i < end; i++)
        if (e->model[i]) fail(e, "SEEK_DATA passed over data");
    off_t hole = lseek(e->fd, at, SEEK_HOLE);
    if (hole < at || (size_t)hole > e->size) fail(e, "SEEK_HOLE gave a place outside of the file");
}

static void look_at_size(struct exerciser *e) {
    note(e, "fstat", 0, 0);
    expect_size(e, e->fd, "fstat");
    if (e->direct_fd >= 0) expect_size(e, e->direct_fd, "fstat of the other descriptor");
    if (lseek(e->append_fd, 0, SEEK_END) != (off_t)e->size) fail(e, "SEEK_END is elsewhere");
}

static void drop_pages(struct exerciser *e) {
    note(e, "POSIX_FADV_DONTNEED", 0, 0);
    (void)posix_fadvise(e->fd, 0, 0, POSIX_FADV_DONTNEED);
}

struct operation reads[] = {
    {"pread", read_plain, 8, false}, {"O_DIRECT read", read_direct, 4, false}, {"mmap read", read_mapped, 6, false},
    {"preadv", read_vector, 2, false}, {"splice", read_spliced, 2, false}, {"SEEK_HOLE", seek_hole, 2, false},
    {"fstat", look_at_size, 3, false}, {"fadvise", drop_pages, 1, false},        {NULL, NULL, 0, false},
};
