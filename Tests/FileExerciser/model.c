#include "exerciser.h"
#include <sys/stat.h>

void expect(struct exerciser *e, const char *what, const unsigned char *got, size_t offset, size_t length) {
    if (memcmp(got, e->model + offset, length) == 0) return;
    size_t first = 0;
    while (got[first] == e->model[offset + first]) first++;
    size_t different = 0;
    for (size_t i = first; i < length; i++) different += got[i] != e->model[offset + i];
    fprintf(
        stderr, "%s of %zu bytes at %zu: first difference at %zu (%#zx), %02x where %02x was written; %zu bytes differ\n", what, length,
        offset, offset + first, offset + first, got[first], e->model[offset + first], different);
    fail(e, "other bytes than were written");
}

void expect_size(struct exerciser *e, int fd, const char *what) {
    struct stat status;
    if (fstat(fd, &status)) fail_errno(e, "fstat");
    if ((size_t)status.st_size == e->size) return;
    fprintf(stderr, "%s: size %lld where %zu was written\n", what, (long long)status.st_size, e->size);
    fail(e, "another size than was written");
}

bool choose_read(struct exerciser *e, size_t *offset, size_t *length) {
    if (e->size == 0) return false;
    *offset = draw(e, e->size);
    *length = 1 + draw(e, e->size - *offset);
    if (draw(e, 2) && *length > 3 * BLOCK) *length = 1 + draw(e, 3 * BLOCK);
    return true;
}

void choose_write(struct exerciser *e, size_t *offset, size_t *length) {
    // Mostly inside the file or just past its end. Sometimes far away, which leaves a hole.
    size_t reach = draw(e, 4) ? (e->size + BLOCK < e->limit ? e->size + BLOCK : e->limit) : e->limit;
    *offset = draw(e, reach);
    size_t longest = draw(e, 3) ? 3 * BLOCK : e->limit / 4;
    *length = 1 + draw(e, longest);
    if (*length > e->limit - *offset) *length = e->limit - *offset;
    // Each write has its own bytes, so that stale data shows. The number of the operation is among
    // them.
    for (size_t i = 0; i < *length; i++) e->buffer[i] = (unsigned char)((e->operation * 131u) ^ (*offset + i) ^ ((*offset + i) >> 8)) | 1;
}

void wrote(struct exerciser *e, const unsigned char *bytes, size_t offset, size_t length) {
    memcpy(e->model + offset, bytes, length);
    if (offset + length > e->size) e->size = offset + length;
}

void resized(struct exerciser *e, size_t size) {
    if (size < e->size) memset(e->model + size, 0, e->size - size);
    e->size = size;
}

void open_all(struct exerciser *e) {
    if (e->fd >= 0) close(e->fd);
    if (e->append_fd >= 0) close(e->append_fd);
    if (e->direct_fd >= 0) close(e->direct_fd);
    e->fd = open(e->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (e->fd < 0) fail_errno(e, "open");
    e->append_fd = open(e->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (e->append_fd < 0) fail_errno(e, "open to append");
    e->direct_fd = open(e->path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (e->direct_fd < 0 && errno != EINVAL) fail_errno(e, "open O_DIRECT");
}
