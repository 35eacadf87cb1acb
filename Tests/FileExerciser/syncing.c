// Syncing, opening again, and the comparison with the file behind the mount.
#include "exerciser.h"

// After a sync, a process beside the mount sees the written data.
static void compare_behind(struct exerciser *e) {
    if (!e->behind) return;
    int fd = open(e->behind, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail_errno(e, "opening the file behind the mount");
    expect_size(e, fd, "the file behind the mount");
    size_t done = 0;
    while (done < e->size) {
        ssize_t count = pread(fd, e->buffer + done, e->size - done, (off_t)done);
        if (count <= 0) fail_errno(e, "reading the file behind the mount");
        done += (size_t)count;
    }
    close(fd);
    expect(e, "the file behind the mount", e->buffer, 0, e->size);
}

static void sync_data(struct exerciser *e) {
    note(e, "fdatasync", 0, 0);
    if (fdatasync(e->fd)) fail_errno(e, "fdatasync");
    compare_behind(e);
}

static void sync_all(struct exerciser *e) {
    note(e, "fsync", 0, 0);
    if (fsync(e->append_fd)) fail_errno(e, "fsync");
    compare_behind(e);
}

static void sync_filesystem(struct exerciser *e) {
    note(e, "syncfs", 0, 0);
    if (syncfs(e->fd)) fail_errno(e, "syncfs");
    compare_behind(e);
}

static void open_anew(struct exerciser *e) {
    note(e, "close and open", 0, 0);
    open_all(e);
    expect_size(e, e->fd, "opened anew");
}

struct operation whole[] = {
    {"fdatasync", sync_data, 1, false},
    {"fsync", sync_all, 1, false},
    {"syncfs", sync_filesystem, 1, false},
    {"open", open_anew, 2, false},
    {NULL, NULL, 0, false},
};
