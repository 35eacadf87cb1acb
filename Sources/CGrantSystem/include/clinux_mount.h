#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// The number of the mount that `fd` was opened through, which no other mount will ever have (STATX_MNT_ID_UNIQUE, Linux 6.8). No
// filesystem is asked. -ENOSYS where the kernel has no such numbers.
int clinux_mount_number(int fd, uint64_t *number);
// Whether the mount of that number is in this process's mount namespace: 1 or 0 (statmount(2), Linux 6.8). No filesystem is asked.
// A negative error number when the kernel does not say.
int clinux_mount_is_there(uint64_t number);

// Of the filesystem of the mount `number`: its device, its type and where it comes from, the last as "" where the kernel does not say (before Linux 6.14).
// Unlike /proc/self/mountinfo this knows mounts that the process's root directory does not lead to, for root (statmount(2), Linux 6.8). No filesystem
// is asked. A negative error number when the kernel does not say, or the words have no room.
struct clinux_mount_filesystem {
    unsigned major, minor;
    char type[64], source[4096];
};
int clinux_mount_filesystem_of(uint64_t number, struct clinux_mount_filesystem *out);

// Where something lies, as far as the kernel says so from its memory.
struct clinux_mount_place {
    unsigned major, minor;
    // As /proc/self/mountinfo has it; used again once the mount is gone. 0 where the kernel does not say (before Linux 5.8).
    uint64_t id;
    // See clinux_mount_number; 0 where the kernel has none.
    uint64_t number;
};
// Of what `path` leads to from `dirfd`, links followed, or of `dirfd` itself when `path` is "". statx(2) with AT_STATX_DONT_SYNC: no
// filesystem is asked, so one that hangs or is dead cannot delay it.
int clinux_mount_place_of(int dirfd, const char *path, struct clinux_mount_place *out);

// An O_PATH descriptor of the directory at an absolute path on which no component is a symbolic link (openat2(2), RESOLVE_NO_SYMLINKS).
int clinux_open_directory_without_links(const char *path);

// Mounts a FUSE filesystem on the directory that `directory` (O_PATH) stands for, wherever that is by now: no path is looked up.
// `words`: mount options separated by commas, of those that fusermount3 knows. `device` gets a descriptor of /dev/fuse, on which the kernel's
// requests come, `mount` one of the mount's root. fsopen(2), fsmount(2), move_mount(2), Linux 5.2. -EINVAL for a word that is not known.
int clinux_fuse_mount(int directory, const char *subtype, const char *source, const char *words, int *device, int *mount);
// Detaches the mount whose root `fd` stands for; what holds something of it keeps that (MNT_DETACH). When something else is mounted on top of
// it, the kernel takes that: look before.
int clinux_unmount_descriptor(int fd);
// umount2(2) of what is mounted at `name` in the directory `parent`. -EBUSY when it is in use.
int clinux_unmount_in(int parent, const char *name);
// Changes the flags of the mount whose root `fd` stands for.
int clinux_remount(int fd, bool read_only, bool set_id, bool devices, bool no_execute, bool no_access_time,
                   bool no_directory_access_time);

// What the daemon of a FUSE filesystem calls the generation of the node that `path` leads to, links followed: part of its file handle, which the
// kernel makes up without asking the daemon (name_to_handle_at(2)). 0 for the root. -EOPNOTSUPP for what has no such handle.
int clinux_fuse_generation(const char *path, uint32_t *generation);

// The entry of the connection `minor` below /sys/fs/fuse/connections: its inode number and time of change, and which mount of
// fusectl that is. -ENOENT when there is no such connection, -ENOSYS when fusectl is not mounted there.
int clinux_fuse_control(unsigned minor, uint64_t *inode, int64_t *changed, uint64_t *instance);

// A descriptor of what cuts the connection `minor` when something is written to it, and of no later one's: the kernel lets go of the entry with its
// connection. Where fusectl is not mounted, it is for this call alone, which root may. -ENOENT when there is no such connection.
int clinux_fuse_control_abort(unsigned minor);
