#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// The unique ID of the mount through which `fd` was opened, never reused.
//
// STATX_MNT_ID_UNIQUE, Linux 6.8. Makes no call to the filesystem. Returns -ENOSYS if the kernel
// has no such IDs.
int clinux_mount_number(int fd, uint64_t *number);
// Whether that mount is in this process's mount namespace: 1 or 0.
//
// Uses statmount(2), Linux 6.8, and makes no call to the filesystem. Returns a negative error
// number if the kernel does not tell.
int clinux_mount_is_there(uint64_t number);

// The filesystem of the mount `number`: device, type and source.
//
// The source is "" if the kernel does not tell it (before Linux 6.14). Unlike /proc/self/mountinfo
// this also finds mounts outside the process's root directory, for root (statmount(2), Linux 6.8).
// Makes no call to the filesystem. Returns a negative error number if the kernel does not tell, or
// if a string does not fit.
struct clinux_mount_filesystem {
    unsigned major, minor;
    char type[64], source[4096];
};
int clinux_mount_filesystem_of(uint64_t number, struct clinux_mount_filesystem *out);

// The mount of a file, from the kernel's memory.
struct clinux_mount_place {
    unsigned major, minor;
    // The ID of /proc/self/mountinfo, which is reused once the mount is gone.
    //
    // It is 0 if the kernel does not tell it (before Linux 5.8).
    uint64_t id;
    // See clinux_mount_number. It is 0 if the kernel has none.
    uint64_t number;
};
// The mount of `path` relative to `dirfd`, or of `dirfd` itself if `path` is "".
//
// Links are followed. statx(2) with AT_STATX_DONT_SYNC makes no call to the filesystem, so a hung
// or dead one cannot delay it.
int clinux_mount_place_of(int dirfd, const char *path, struct clinux_mount_place *out);

// Opens the directory at an absolute path, O_PATH, without following symbolic links.
//
// It refuses them in every component (openat2(2), RESOLVE_NO_SYMLINKS).
int clinux_open_directory_without_links(const char *path);

// Mounts a FUSE filesystem on the directory behind `directory` (O_PATH).
//
// No path is looked up. `words`: comma-separated mount options as fusermount3 defines them. Sets
// `device` to a /dev/fuse descriptor for the requests, `mount` to a descriptor of the mount's root.
// Uses fsopen(2), fsmount(2), move_mount(2) (Linux 5.2). Returns -EINVAL for an unknown option.
int clinux_fuse_mount(int directory, const char *subtype, const char *source, const char *words, int *device, int *mount);
// Detaches the mount with the root `fd` (MNT_DETACH).
//
// Holders of its files keep them. If another mount covers it the kernel detaches that one, so check
// first.
int clinux_unmount_descriptor(int fd);
// umount2(2) of the mount at `name` in the directory `parent`. -EBUSY if it is in use.
int clinux_unmount_in(int parent, const char *name);
// Changes the flags of the mount with the root `fd`.
int clinux_remount(int fd, bool read_only, bool set_id, bool devices, bool no_execute, bool no_access_time,
                   bool no_directory_access_time);

// The id and the generation that a FUSE daemon gave the node of `path`, links followed.
//
// The generation of the root is 0. Both are in the file handle that the kernel builds without a
// request to the daemon (name_to_handle_at(2)). Returns -EOPNOTSUPP for files without such a handle.
int clinux_fuse_node(const char *path, uint64_t *node, uint32_t *generation);

// The entry of the connection `minor` below /sys/fs/fuse/connections.
//
// Gives its inode number, its ctime, and the mount of fusectl that it is in. Returns -ENOENT if
// there is no such connection, -ENOSYS if fusectl is not mounted there.
int clinux_fuse_control(unsigned minor, uint64_t *inode, int64_t *changed, uint64_t *instance);

// Opens the `abort` file of the connection `minor`.
//
// It never aborts a later connection: the kernel drops the entry with its connection. If fusectl is
// not mounted, it is mounted for this call alone, which needs root. Returns -ENOENT if there is no
// such connection.
int clinux_fuse_control_abort(unsigned minor);
