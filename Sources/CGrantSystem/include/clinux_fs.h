#pragma once
#include <stdint.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

// A file as statx(2) describes it.
struct clinux_statx {
    struct stat st;
    uint64_t mount_id;
    int64_t birth_seconds;
    uint32_t birth_nanoseconds;
    bool has_birth;
    bool has_mount_id;
    bool is_mount_root;
};

struct clinux_handle {
    int32_t type;
    uint32_t length;
    uint8_t bytes[128];
};

// open flags that <fcntl.h> hides without _GNU_SOURCE
extern const int clinux_O_PATH, clinux_O_DIRECT, clinux_O_TMPFILE, clinux_O_NOATIME, clinux_O_LARGEFILE;

// openat2(2) with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS.
//
// Also with RESOLVE_NO_XDEV unless `cross_mounts`.
int clinux_open_beneath(int dirfd, const char *path, int flags, mode_t mode, bool cross_mounts);
// A file without a name in the directory itself (O_TMPFILE).
int clinux_open_nameless(int dirfd, int flags, mode_t mode);
int clinux_openat(int dirfd, const char *path, int flags, mode_t mode);
int clinux_close(int fd);
// CLINUX_ZEROS bytes of zeros, which are read-only.
enum { CLINUX_ZEROS = 4096 };
void *clinux_zeros(void);
// Opens an O_PATH descriptor of an object that supports no access.
//
// No call can read, write, list, lock, traverse or reopen it.
int clinux_open_nothing(void);
// dup3(2): replaces `fd` by a copy of `by`, and closes the old file.
//
// This is atomic, so the number is never free. The close may hang in its filesystem, and the number
// is the copy's by then.
int clinux_replace(int fd, int by);
// Opens the file behind an O_PATH descriptor, through /proc/thread-self/fd.
int clinux_reopen(int fd, int flags);
// Keeps reads through this descriptor from changing the access time (O_NOATIME).
//
// Returns -EPERM without ownership or CAP_FOWNER.
int clinux_keep_access_time(int fd);
// statx(2). `path` NULL or "": the descriptor itself.
//
// A final symbolic link is never followed. No automount.
int clinux_statx(int dirfd, const char *path, struct clinux_statx *out);
// The same for a descriptor, from the kernel's memory: makes no call to the filesystem.
//
// fstatat(2) with an empty path would make one.
int clinux_statx_known(int fd, struct clinux_statx *out);
int clinux_fstatvfs(int fd, struct statvfs *out);
int clinux_fstatfs_type(int fd, int64_t *type, uint64_t *fsid);

int clinux_name_to_handle(int fd, struct clinux_handle *out);
int clinux_open_by_handle(int mount_fd, const struct clinux_handle *handle, int flags);
// FS_IOC_GETFSUUID. Needs a descriptor that is not O_PATH. -ENOTTY if unknown.
int clinux_fs_uuid(int fd, uint8_t out[16]);
// FS_IOC_GETVERSION
int clinux_generation(int fd, uint32_t *out);

// The size of the argument of an ioctl on file flags (chattr(1), xfs_io(8)).
//
// These are FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR. Returns 0
// for every other command. Sets `changes` to whether the command changes flags.
size_t clinux_flags_size(unsigned command, bool *changes);
// Makes one of these calls on a descriptor that is not O_PATH.
//
// `value`: that many bytes, read or written.
int clinux_flags(int fd, unsigned command, void *value);
// Whether a directory has the flag FS_CASEFOLD_FL: 1 or 0, or a negative error number.
int clinux_folds_names(int fd);

ssize_t clinux_getdents(int fd, void *buffer, size_t size);
int64_t clinux_lseek(int fd, int64_t offset, int whence);
extern const int clinux_SEEK_DATA, clinux_SEEK_HOLE;

ssize_t clinux_pread(int fd, void *buffer, size_t size, off_t offset);
// `append`: writes to the current end of the file (RWF_APPEND).
ssize_t clinux_pwrite(int fd, const void *buffer, size_t size, off_t offset, bool append);
// Writes at the offset even on a descriptor with O_APPEND (RWF_NOAPPEND).
//
// Returns -EPERM for an append-only file, -EOPNOTSUPP before Linux 6.9.
ssize_t clinux_pwrite_in_place(int fd, const void *buffer, size_t size, off_t offset);
ssize_t clinux_copy_file_range(int from, off_t from_offset, int to, off_t to_offset, size_t size, unsigned flags);
// FICLONE: `to` shares all data of `from` until either changes.
//
// Returns -EOPNOTSUPP, -EXDEV, -EINVAL or -ENOTTY if the filesystem cannot.
int clinux_clone(int from, int to);
/// FUSE_DEV_IOC_CLONE: connects `device` to the connection of `from`.
///
/// `device` is a newly opened /dev/fuse.
int clinux_clone_fuse_device(int device, int from);
int clinux_fallocate(int fd, int mode, off_t offset, off_t length);
int clinux_fsync(int fd, bool data_only);
int clinux_syncfs(int fd);
int clinux_ftruncate(int fd, off_t size);

int clinux_mkdirat(int dirfd, const char *name, mode_t mode);
int clinux_mknodat(int dirfd, const char *name, mode_t mode, dev_t device);
int clinux_symlinkat(const char *target, int dirfd, const char *name);
int clinux_unlinkat(int dirfd, const char *name, bool directory);
int clinux_renameat2(int from, const char *name, int to, const char *new_name, unsigned flags);
// Links the file behind the descriptor, through /proc/thread-self/fd.
//
// It uses AT_SYMLINK_FOLLOW of the magic link.
int clinux_link_descriptor(int fd, int to, const char *new_name);
ssize_t clinux_readlink_descriptor(int fd, char *buffer, size_t size);
// Changes the path of a descriptor, as /proc/self/fd shows it, to that on the machine.
//
// Returns its new length, or a negative error number: -ENOENT if it has none.
ssize_t clinux_place_path(int fd, char *path, ssize_t count, size_t size);
// The path of an open descriptor as /proc/self/fd shows it, or that on the machine.
ssize_t clinux_descriptor_path(int fd, char *buffer, size_t size);

// Whether an open file is the directory `root` or lies below it: 1 or 0.
//
// It uses the kernel's name for the descriptor, and makes no call to a filesystem. `root` may be
// O_PATH. A removed file counts as where it lay. Returns -ENOENT if the kernel has no name for it,
// -ENAMETOOLONG if a path has 4096 bytes or more, -EAGAIN if `root` is renamed again and again.
int clinux_lies_below(int root, int fd);

// The path of an open file below the directory `root`, in the same way.
//
// It is written into `path`, of CLINUX_PATH_BYTES, from `*offset` on, without a leading slash.
// Returns its length, 0 for `root` itself, or a negative error number: -EXDEV if the file is
// elsewhere, otherwise those of clinux_lies_below.
#define CLINUX_PATH_BYTES 4096
ssize_t clinux_place_below(int root, int fd, char *path, size_t *offset);
// The same below a directory whose path is known.
ssize_t clinux_place_under(const char *top, size_t length, int fd, char *path, size_t *offset);
// The same for a path from clinux_descriptor_path.
//
// Also 0 if the directory has another path by now.
int clinux_path_is_above(const char *top, size_t length, int fd);

// These take an O_PATH descriptor and act on exactly that inode (through /proc/thread-self/fd).
int clinux_chmod_descriptor(int fd, mode_t mode);
int clinux_chown_descriptor(int fd, uid_t uid, gid_t gid);
int clinux_truncate_descriptor(int fd, off_t size);
// statx(2) past the kernel's cache: calls the filesystem itself. 0 or a negative error number.
int clinux_statx_sync(int fd);
// access(2) for writing on the file of an O_PATH descriptor, with the process's rights.
//
// The thread's own identity has no effect. Returns 0 or a negative error number.
int clinux_may_write(int fd);
// Whether this thread may make and remove names in a directory.
//
// It uses the thread's fsuid, groups and capabilities. Returns 0 or a negative error number.
int clinux_may_make_in(int fd);
int clinux_utimens_descriptor(int fd, const struct timespec times[2]);
ssize_t clinux_getxattr_descriptor(int fd, const char *name, void *value, size_t size);
ssize_t clinux_listxattr_descriptor(int fd, char *list, size_t size);
int clinux_setxattr_descriptor(int fd, const char *name, const void *value, size_t size, int flags);
int clinux_removexattr_descriptor(int fd, const char *name);

// fcntl F_OFD_*: type is F_RDLCK, F_WRLCK, F_UNLCK.
int clinux_ofd_set_lock(int fd, short type, int64_t start, int64_t length);
int clinux_ofd_get_lock(int fd, short *type, int64_t *start, int64_t *length, pid_t *pid);
int clinux_flock(int fd, int operation);
