#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "clinux_fs.h"

// Kinds of changes, as bits of clinux_change.kinds.
enum {
    clinux_change_names = 1,       // an entry was added, removed or renamed
    clinux_change_data = 2,        // contents were written or truncated
    clinux_change_attributes = 4,  // mode, owner, times, link count, xattrs
    clinux_change_overflow = 8,    // the kernel dropped changes: anything may have changed
    clinux_change_ended = 16,      // the directory is no longer watched (inotify: it is gone)
    clinux_change_directory = 32,  // with names: a directory was removed or renamed (fanotify)
    clinux_change_moved = 64,      // an entry of this directory was renamed, or without a name the directory
};

// One change. `name` and the handle point into the buffer that was read.
struct clinux_change {
    uint32_t kinds;
    pid_t process;        // the thread group that made it, 0 if that is not reported
    bool has_directory;
    uint64_t directory;   // the directory of the change, or the changed one: see clinux_directory_key
    const char *name;     // NULL if it is the directory itself
    uint64_t filesystem;  // f_fsid of statfs(2), 0 with inotify
    uint64_t file_key;    // a hash of `file`
    struct clinux_handle directory_handle;
    struct clinux_handle file;  // both: length 0 if not reported, with names since Linux 5.17
};

// A fanotify(7) group that reports changes by handle.
//
// It reports names and attributes with the entry's name, or `data` with only the directory. Returns
// -EPERM without CAP_SYS_ADMIN, -EINVAL before Linux 5.17.
int clinux_fanotify_open(bool data);
// Reports changes of names and attributes on the whole filesystem of `fd`.
//
// `fd` may be O_PATH. Also reports the close of a file that was open for writing.
int clinux_fanotify_watch(int group, int fd);
// Starts or stops reporting each write to files in one directory.
//
// It lasts for as long as the kernel keeps the directory in memory.
int clinux_fanotify_watch_data(int group, int fd, bool on);
// The key of a directory in the changes of a fanotify group: a hash of its handle.
int clinux_directory_key(int fd, uint64_t *key);
// Decodes the change at the start of the buffer.
//
// Returns its length in bytes, 0 if there is none.
size_t clinux_fanotify_next(const void *buffer, size_t length, struct clinux_change *out);

// An inotify(7) instance.
int clinux_inotify_open(void);
// Watches one directory, and returns its key.
int clinux_inotify_watch(int group, int fd);
int clinux_inotify_unwatch(int group, int key);
size_t clinux_inotify_next(const void *buffer, size_t length, struct clinux_change *out);

ssize_t clinux_read(int fd, void *buffer, size_t size);
