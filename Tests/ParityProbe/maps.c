// Files in memory. A touch beyond the last page raises SIGBUS, natively as well.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct mapping *map_of(const char *text) { return &self.maps[(unsigned)(text[0] - '0') % MAPS]; }

static void drop(struct mapping *map) {
    if (map->at != NULL) munmap(map->at, map->length);
    memset(map, 0, sizeof *map);
}

// MAP SLOT LENGTH PROT FLAGS OFFSET
static void call_mmap(char **a) {
    struct mapping *map = map_of(a[0]);
    size_t length = (size_t)number(a[2]);
    int flags = (int)number(a[4]);
    char *at = mmap(NULL, length, (int)number(a[3]), flags, slot(a[1]), number(a[5]) / 4096 * 4096);
    if (at == MAP_FAILED) {
        say_result(-1);
        return;
    }
    drop(map);
    struct stat status;
    if (fstat(slot(a[1]), &status)) memset(&status, 0, sizeof status);
    *map = (struct mapping){at, length, (flags & MAP_PRIVATE) != 0, false, status.st_dev, status.st_ino, number(a[5]) / 4096 * 4096};
    say("0");
}

struct access {
    struct mapping *map;
    size_t offset, count;
};
static bool find(struct access *access, char **a) {
    access->map = map_of(a[0]);
    if (access->map->at == NULL) {
        say("unmapped");
        return false;
    }
    access->offset = (size_t)number(a[1]) % access->map->length;
    access->count = (size_t)number(a[2]);
    if (access->count > access->map->length - access->offset) access->count = access->map->length - access->offset;
    return true;
}
// Byte by byte, so that the same bytes are copied before a fault everywhere.
static void copy(volatile char *to, const volatile char *from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = from[i];
}
static void copy_from(void *data) {
    struct access *access = data;
    copy(self.data, access->map->at + access->offset, access->count);
}
static void copy_to(void *data) {
    struct access *access = data;
    copy(access->map->at + access->offset, self.data, access->count);
}
static void call_mread(char **a) {
    struct access access;
    if (!find(&access, a)) return;
    if (survives(copy_from, &access)) say("%08x", hash(self.data, access.count, 3)); else say("fault");
}
// Stores nothing between the end of the file and the end of its last page. Whether such bytes show
// when the file grows differs on FUSE, on tmpfs and on others (docs/conformance.md).
// An access that reaches beyond that page is unchanged. Returns true if nothing is left to store.
static bool ends_with_file(struct access *access) {
    struct stat status = {0};
    for (size_t i = 0; i < SLOTS; i++)
        if (self.slots[i] >= 0 && fstat(self.slots[i], &status) == 0 && status.st_dev == access->map->device && status.st_ino == access->map->inode) break;
        else status.st_size = 0;
    off_t first = access->map->start + (off_t)access->offset, page = (status.st_size + 4095) / 4096 * 4096;
    if (access->map->is_private || status.st_size == 0 || first >= page || first + (off_t)access->count <= status.st_size) return false;
    if (first >= status.st_size) return true;
    access->count = (size_t)(status.st_size - first);
    return false;
}
static void call_mdirty(char **a) {
    struct access access;
    if (!find(&access, a)) return;
    if (ends_with_file(&access)) {
        say("behind the end");
        return;
    }
    fill_data(access.count, (unsigned)number(a[3]));
    access.map->was_written = true;
    say(survives(copy_to, &access) ? "written" : "fault");
}
// With msync(2) at once: before it, the kernel chooses when the times change, and without
// write-back they have not changed yet (fs/fuse/file.c, fuse_page_mkwrite: its file_update_time
// does nothing if the server keeps the times).
// The range is first unmapped for a moment: tmpfs sets times when a page is mapped for writing, and
// never write-protects it again by itself.
static void call_mwrite(char **a) {
    struct mapping *map = map_of(a[0]);
    if (map->at != NULL && !map->is_private) madvise(map->at, map->length, MADV_DONTNEED);
    call_mdirty(a);
    if (map->at != NULL) say_result(msync(map->at, map->length, MS_SYNC));
}
static void call_msync(char **a) {
    struct mapping *map = map_of(a[0]);
    if (map->at == NULL) say("unmapped"); else say_result(msync(map->at, map->length, (int)number(a[1])));
}
static void call_munmap(char **a) {
    struct mapping *map = map_of(a[0]);
    if (map->at == NULL) say("unmapped"); else say_result(munmap(map->at, map->length));
    memset(map, 0, sizeof *map);
}

const struct call calls_maps[] = {
    {"mmap", 6, call_mmap}, {"mread", 3, call_mread}, {"mwrite", 4, call_mwrite}, {"mdirty", 4, call_mdirty}, {"msync", 2, call_msync}, {"munmap", 1, call_munmap},
    {NULL, 0, NULL},
};
