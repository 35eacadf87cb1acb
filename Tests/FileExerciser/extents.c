// fallocate's modes and copy_file_range: changes that move or remove data in the kernel's cache.
#include "exerciser.h"
#include <linux/falloc.h>

static struct operation *self(void (*run)(struct exerciser *)) {
    struct operation *operation = extents;
    while (operation->run != run) operation++;
    return operation;
}

// Runs fallocate. Returns false if the filesystem does not support the mode.
static bool allocate(struct exerciser *e, void (*run)(struct exerciser *), int mode, size_t offset, size_t length) {
    note(e, self(run)->name, offset, length);
    if (fallocate(e->fd, mode, (off_t)offset, (off_t)length) == 0) return true;
    if (!refuse(self(run), errno)) fail_errno(e, self(run)->name);
    return false;
}

static void place(struct exerciser *e, size_t *offset, size_t *length) {
    *offset = draw(e, e->limit);
    *length = 1 + draw(e, draw(e, 2) ? 4 * BLOCK : e->limit / 3);
    if (*length > e->limit - *offset) *length = e->limit - *offset;
}

static void clear(struct exerciser *e, size_t offset, size_t length) {
    if (offset < e->size) memset(e->model + offset, 0, offset + length < e->size ? length : e->size - offset);
}

static void preallocate(struct exerciser *e) {
    size_t offset, length;
    place(e, &offset, &length);
    if (allocate(e, preallocate, 0, offset, length) && offset + length > e->size) resized(e, offset + length);
}

static void preallocate_keeping(struct exerciser *e) {
    size_t offset, length;
    place(e, &offset, &length);
    allocate(e, preallocate_keeping, FALLOC_FL_KEEP_SIZE, offset, length);
}

static void punch(struct exerciser *e) {
    size_t offset, length;
    place(e, &offset, &length);
    if (allocate(e, punch, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length)) clear(e, offset, length);
}

static void zero(struct exerciser *e) {
    size_t offset, length;
    place(e, &offset, &length);
    if (!allocate(e, zero, FALLOC_FL_ZERO_RANGE, offset, length)) return;
    clear(e, offset, length);
    if (offset + length > e->size) resized(e, offset + length);
}

static void zero_keeping(struct exerciser *e) {
    size_t offset, length;
    place(e, &offset, &length);
    if (allocate(e, zero_keeping, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, length)) clear(e, offset, length);
}

static void collapse(struct exerciser *e) {
    size_t blocks = e->size / BLOCK;
    if (blocks < 3) return;
    size_t offset = draw(e, blocks - 1) * BLOCK, length = BLOCK * (1 + draw(e, (e->size - 1 - offset) / BLOCK));
    if (offset + length >= e->size || !allocate(e, collapse, FALLOC_FL_COLLAPSE_RANGE, offset, length)) return;
    memmove(e->model + offset, e->model + offset + length, e->size - offset - length);
    resized(e, e->size - length);
}

static void insert(struct exerciser *e) {
    if (e->size < BLOCK || e->size + BLOCK > e->limit) return;
    size_t offset = draw(e, (e->size - 1) / BLOCK + 1) * BLOCK, length = BLOCK * (1 + draw(e, (e->limit - e->size) / BLOCK));
    if (offset >= e->size || length > e->limit / 4 || e->size + length > e->limit) return;
    if (!allocate(e, insert, FALLOC_FL_INSERT_RANGE, offset, length)) return;
    memmove(e->model + offset + length, e->model + offset, e->size - offset);
    memset(e->model + offset, 0, length);
    e->size += length;
}

static void copy(struct exerciser *e) {
    size_t from, length;
    if (!choose_read(e, &from, &length)) return;
    size_t to = draw(e, e->limit);
    if (length > e->limit - to) length = e->limit - to;
    // The ranges may not overlap (EINVAL).
    if (from < to + length && to < from + length) length = from < to ? to - from : from - to;
    if (length == 0) return;
    note(e, "copy_file_range", from, length);
    note(e, "  to", to, length);
    off_t in = (off_t)from, out = (off_t)to;
    size_t done = 0;
    while (done < length) {
        ssize_t count = copy_file_range(e->fd, &in, e->fd, &out, length - done, 0);
        if (count < 0 && refuse(self(copy), errno)) return;
        if (count <= 0) fail_errno(e, "copy_file_range");
        done += (size_t)count;
    }
    memcpy(e->buffer, e->model + from, length);
    wrote(e, e->buffer, to, length);
}

struct operation extents[] = {
    {"fallocate", preallocate, 2, false},
    {"fallocate KEEP_SIZE", preallocate_keeping, 2, false},
    {"PUNCH_HOLE", punch, 4, false},
    {"ZERO_RANGE", zero, 3, false},
    {"ZERO_RANGE KEEP_SIZE", zero_keeping, 2, false},
    {"COLLAPSE_RANGE", collapse, 2, false},
    {"INSERT_RANGE", insert, 2, false},
    {"copy_file_range", copy, 4, false},
    {NULL, NULL, 0, false},
};
