// The place of an open file, by the kernel's own names for it. No filesystem is called, so this
// does not block. The kernel reads a path in one piece (fs/d_path.c, under rename_lock), so a
// rename cannot tear it apart.
#include "clinux_fs.h"
#include "clinux_call.h"
#include "clinux_owners.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The longest path that /proc writes.
enum { PATH_BYTES = CLINUX_PATH_BYTES, ATTEMPTS = 16 };

static const char removed[] = " (deleted)";

static ssize_t path_of(int fd, char path[PATH_BYTES]) {
    char name[16];
    snprintf(name, sizeof name, "%d", fd);
    return clinux_place_path(fd, path, RETRY(readlinkat(clinux_own_descriptors(), name, path, PATH_BYTES)), PATH_BYTES);
}

ssize_t clinux_place_path(int fd, char *path, ssize_t count, size_t size) {
    count = clinux_owners_path(fd, path, count, size);
    if (count != 1 || *path != '/') return count;
    // The kernel shows this also for the root of a mount that has no place any more, and for a file that was opened by handle and has no
    // known name.
    struct stat file, root;
    if (fstatat(fd, "", &file, AT_EMPTY_PATH) == -1 || stat("/", &root) == -1) return negative_errno();
    return file.st_ino == root.st_ino && file.st_dev == root.st_dev ? count : -ENOENT;
}

static int is_below(const char *top, size_t length, const char *path, size_t count) {
    if (length == 1 && *top == '/') return 1;
    return count >= length && memcmp(top, path, length) == 0 && (count == length || path[length] == '/');
}

// A removed directory is shown with a word behind its name, and its former entries without.
static size_t without_word(int root, const char *top, size_t length) {
    size_t word = sizeof removed - 1;
    if (length <= word || memcmp(top + length - word, removed, word) != 0) return length;
    struct statx x;
    int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
    return RETRY(statx(root, "", flags, STATX_NLINK, &x)) == 0 && x.stx_nlink == 0 ? length - word : length;
}

int clinux_path_is_above(const char *top, size_t length, int fd) {
    char path[PATH_BYTES];
    ssize_t count = path_of(fd, path);
    return count < 0 ? (int)count : is_below(top, length, path, (size_t)count);
}

int clinux_lies_below(int root, int fd) {
    if (root == fd) return 1;
    char top[PATH_BYTES], path[PATH_BYTES], again[PATH_BYTES];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        ssize_t length = path_of(root, top);
        if (length < 0) return (int)length;
        ssize_t count = path_of(fd, path);
        if (count < 0) return (int)count;
        int result = is_below(top, (size_t)length, path, (size_t)count);
        if (result != 0) return result;
        // Outside only if the directory itself was not renamed between the two reads.
        ssize_t second = path_of(root, again);
        if (second != length || memcmp(top, again, (size_t)length) != 0) continue;
        return is_below(top, without_word(root, top, (size_t)length), path, (size_t)count);
    }
    return -EAGAIN;
}

ssize_t clinux_place_under(const char *top, size_t length, int fd, char *path, size_t *offset) {
    *offset = 0;
    ssize_t count = path_of(fd, path);
    if (count < 0) return count;
    int result = is_below(top, length, path, (size_t)count);
    if (result < 0) return result;
    if (result == 0) return -EXDEV;
    if (length == 1 && *top == '/') length = 0;
    if ((size_t)count <= length) return 0;
    *offset = length + 1;
    return count - (ssize_t)length - 1;
}

ssize_t clinux_place_below(int root, int fd, char *path, size_t *offset) {
    *offset = 0;
    if (root == fd) return 0;
    char top[PATH_BYTES], again[PATH_BYTES];
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        ssize_t length = path_of(root, top);
        if (length < 0) return length;
        ssize_t result = clinux_place_under(top, (size_t)length, fd, path, offset);
        // A path is cut where the directory's own ends, so that must not change in between.
        ssize_t second = path_of(root, again);
        if (second != length || memcmp(top, again, (size_t)length) != 0) continue;
        if (result != -EXDEV) return result;
        return clinux_place_under(top, without_word(root, top, (size_t)length), fd, path, offset);
    }
    return -EAGAIN;
}
