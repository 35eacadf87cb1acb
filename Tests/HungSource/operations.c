#include "hung.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int root;

// Paths come as "/a/b". Below the root's descriptor they are "a/b", and the root itself is ".".
static const char *below(const char *path) { return path[1] ? path + 1 : "."; }
static int result(int value) { return value < 0 ? -errno : 0; }

static int hung_getattr(const char *path, struct stat *st, struct fuse_file_info *info) {
    PASS("getattr");
    if (info && info->fh) return result(fstat((int)info->fh, st));
    return result(fstatat(root, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int hung_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *info,
                        enum fuse_readdir_flags flags) {
    (void)offset, (void)info, (void)flags;
    PASS("readdir");
    int fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) return -errno;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)DTTOIF(entry->d_type)};
        if (fill(list, entry->d_name, &st, 0, 0)) break;
    }
    closedir(directory);
    return 0;
}

static int hung_opendir(const char *path, struct fuse_file_info *info) {
    (void)info;
    PASS("opendir");
    // Opens the directory for reading, as a server must that lists it.
    int fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : result(close(fd));
}

static int keep(int fd, struct fuse_file_info *info) {
    if (fd < 0) return -errno;
    info->fh = (uint64_t)fd;
    // Every read and write must reach this program, because cached data would not hang.
    info->direct_io = 1;
    return 0;
}

static int hung_open(const char *path, struct fuse_file_info *info) {
    PASS("open");
    return keep(openat(root, below(path), (info->flags & ~(O_CREAT | O_EXCL | O_APPEND)) | O_CLOEXEC), info);
}

static int hung_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    PASS("create");
    return keep(openat(root, below(path), (info->flags & ~O_APPEND) | O_CREAT | O_CLOEXEC, mode), info);
}

static int hung_read(const char *path, char *bytes, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path;
    PASS("read");
    ssize_t count = pread((int)info->fh, bytes, size, offset);
    return count < 0 ? -errno : (int)count;
}

static int hung_write(const char *path, const char *bytes, size_t size, off_t offset, struct fuse_file_info *info) {
    (void)path;
    PASS("write");
    ssize_t count = pwrite((int)info->fh, bytes, size, offset);
    return count < 0 ? -errno : (int)count;
}

static int hung_flush(const char *path, struct fuse_file_info *info) {
    (void)path, (void)info;
    PASS("flush");
    return 0;
}

static int hung_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    PASS("release");
    close((int)info->fh);
    return 0;
}

static int hung_fsync(const char *path, int data_only, struct fuse_file_info *info) {
    (void)path, (void)data_only;
    PASS("fsync");
    return result(fsync((int)info->fh));
}

static int hung_truncate(const char *path, off_t size, struct fuse_file_info *info) {
    PASS("truncate");
    if (info && info->fh) return result(ftruncate((int)info->fh, size));
    int fd = openat(root, below(path), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    int done = result(ftruncate(fd, size));
    close(fd);
    return done;
}

static int hung_mknod(const char *path, mode_t mode, dev_t device) {
    PASS("mknod");
    return result(mknodat(root, below(path), mode, device));
}

static int hung_mkdir(const char *path, mode_t mode) {
    PASS("mkdir");
    return result(mkdirat(root, below(path), mode));
}

static int hung_unlink(const char *path) {
    PASS("unlink");
    return result(unlinkat(root, below(path), 0));
}

static int hung_rmdir(const char *path) {
    PASS("rmdir");
    return result(unlinkat(root, below(path), AT_REMOVEDIR));
}

static int hung_rename(const char *from, const char *to, unsigned flags) {
    PASS("rename");
    return result(renameat2(root, below(from), root, below(to), flags));
}

static int hung_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *info) {
    (void)info;
    PASS("utimens");
    return result(utimensat(root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int hung_chmod(const char *path, mode_t mode, struct fuse_file_info *info) {
    (void)info;
    PASS("chmod");
    return result(fchmodat(root, below(path), mode, 0));
}

static int hung_link(const char *from, const char *to) {
    PASS("link");
    return result(linkat(root, below(from), root, below(to), 0));
}

static int hung_symlink(const char *text, const char *path) {
    PASS("symlink");
    return result(symlinkat(text, root, below(path)));
}

static int hung_readlink(const char *path, char *text, size_t size) {
    PASS("readlink");
    ssize_t length = readlinkat(root, below(path), text, size - 1);
    if (length < 0) return -errno;
    text[length] = 0;
    return 0;
}

static int hung_statfs(const char *path, struct statvfs *st) {
    (void)path;
    PASS("statfs");
    return result(fstatvfs(root, st));
}

static int hung_flock(const char *path, struct fuse_file_info *info, int operation) {
    (void)path;
    PASS("lock");
    return result(flock((int)info->fh, operation));
}

static void *hung_init(struct fuse_conn_info *connection, struct fuse_config *config) {
    // No reply comes from a cache, and hundreds of requests can hang at once.
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    config->use_ino = 1;
    config->hard_remove = 1;
    connection->max_background = 2000;
    connection->congestion_threshold = 2000;
    return NULL;
}

const struct fuse_operations operations = {
    .getattr = hung_getattr, .readdir = hung_readdir, .opendir = hung_opendir, .open = hung_open, .create = hung_create,
    .read = hung_read, .write = hung_write, .flush = hung_flush, .release = hung_release, .fsync = hung_fsync,
    .truncate = hung_truncate, .mknod = hung_mknod, .mkdir = hung_mkdir, .unlink = hung_unlink, .rmdir = hung_rmdir, .rename = hung_rename,
    .utimens = hung_utimens, .chmod = hung_chmod, .link = hung_link, .symlink = hung_symlink, .readlink = hung_readlink, .statfs = hung_statfs, .flock = hung_flock, .init = hung_init,
};
