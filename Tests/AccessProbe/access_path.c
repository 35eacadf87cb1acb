#include "probe.h"
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <sys/xattr.h>

static char buffer[FILE_SIZE];

static int opened_and_closed(int fd) {
    if (fd < 0) return errno;
    close(fd);
    return DONE;
}
static int do_read(struct probe *p) {
    int fd = open(in(p, "read"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = check_pattern((unsigned char *)buffer, read(fd, buffer, sizeof buffer), 0);
    close(fd);
    return result;
}
static int do_open_write(struct probe *p) { return opened_and_closed(open(in(p, "write"), O_WRONLY | O_CLOEXEC)); }
static int do_open_rdwr(struct probe *p) { return opened_and_closed(open(in(p, "rdwr"), O_RDWR | O_CLOEXEC)); }
static int do_open_append(struct probe *p) { return opened_and_closed(open(in(p, "append"), O_WRONLY | O_APPEND | O_CLOEXEC)); }
static int do_open_truncate(struct probe *p) { return opened_and_closed(open(in(p, "victim"), O_WRONLY | O_TRUNC | O_CLOEXEC)); }
static int do_open_existing(struct probe *p) { return opened_and_closed(open(in(p, "read"), O_CREAT | O_RDONLY | O_CLOEXEC, 0600)); }
static int do_open_fifo(struct probe *p) { return opened_and_closed(open(in(p, "fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC)); }
static int do_open_path(struct probe *p) { return opened_and_closed(open(in(p, "read"), O_PATH | O_CLOEXEC)); }
static int do_open_deep(struct probe *p) { return opened_and_closed(open(in(p, "sub/inner"), O_RDONLY | O_CLOEXEC)); }
static int do_open_link(struct probe *p) { return opened_and_closed(open(in(p, "link"), O_RDONLY | O_CLOEXEC)); }
static int do_open_top(struct probe *p) { return opened_and_closed(open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int do_stat_top(struct probe *p) {
    struct stat st;
    return RESULT(stat(p->dir, &st));
}
static int do_stat(struct probe *p) {
    struct stat st;
    return RESULT(stat(in(p, "read"), &st));
}
static int do_lstat(struct probe *p) {
    struct stat st;
    return RESULT(lstat(in(p, "link"), &st));
}
static int do_stat_absent(struct probe *p) {
    struct stat st;
    return RESULT(stat(in(p, "absent"), &st));
}
static int do_access(struct probe *p) { return RESULT(access(in(p, "read"), R_OK)); }
static int do_access_write(struct probe *p) { return RESULT(access(in(p, "write"), W_OK)); }
static int do_access_exists(struct probe *p) { return RESULT(access(in(p, "read"), F_OK)); }
static int do_statfs(struct probe *p) {
    struct statfs sf;
    return RESULT(statfs(in(p, "read"), &sf));
}
static int do_list(struct probe *p) {
    int fd = open(in(p, "listed"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = RESULT(getdents64(fd, buffer, sizeof buffer));
    close(fd);
    return result;
}
static int do_chmod(struct probe *p) { return RESULT(chmod(in(p, "attributes"), 0644)); }
static int do_chown(struct probe *p) { return RESULT(chown(in(p, "attributes"), geteuid(), getegid())); }
static int do_utimens(struct probe *p) { return RESULT(utimensat(AT_FDCWD, in(p, "attributes"), NULL, 0)); }
static int do_truncate(struct probe *p) { return RESULT(truncate(in(p, "attributes"), FILE_SIZE)); }
static int do_create(struct probe *p) {
    int result = opened_and_closed(open(in(p, "new-file"), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    if (result == DONE) unlink(in(p, "new-file"));
    return result;
}
static int do_mkdir(struct probe *p) {
    int result = RESULT(mkdir(in(p, "new-directory"), 0700));
    if (result == DONE) rmdir(in(p, "new-directory"));
    return result;
}
static int do_rmdir(struct probe *p) {
    int result = RESULT(rmdir(in(p, "empty")));
    if (result == DONE) mkdir(in(p, "empty"), 0755);
    return result;
}
static int do_mkfifo(struct probe *p) {
    int result = RESULT(mkfifo(in(p, "new-fifo"), 0600));
    if (result == DONE) unlink(in(p, "new-fifo"));
    return result;
}
static int do_symlink(struct probe *p) {
    int result = RESULT(symlink("read", in(p, "new-symlink")));
    if (result == DONE) unlink(in(p, "new-symlink"));
    return result;
}
static int do_link(struct probe *p) {
    int result = RESULT(link(in(p, "left"), in(p, "new-link")));
    if (result == DONE) unlink(in(p, "new-link"));
    return result;
}
static int do_rename(struct probe *p) {
    int result = RESULT(rename(in(p, "moved"), in(p, "sub/moved")));
    if (result == DONE) rename(in(p, "sub/moved"), in(p, "moved"));
    return result;
}
static int do_rename_over(struct probe *p) {
    int result = RESULT(rename(in(p, "moved"), in(p, "victim")));
    if (result == DONE) {
        rename(in(p, "victim"), in(p, "moved"));
        opened_and_closed(open(in(p, "victim"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    }
    return result;
}
static int do_unlink(struct probe *p) {
    int result = RESULT(unlink(in(p, "victim")));
    if (result == DONE) opened_and_closed(open(in(p, "victim"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    return result;
}
static int do_readlink(struct probe *p) { return RESULT(readlink(in(p, "link"), buffer, sizeof buffer)); }
static int do_getxattr(struct probe *p) { return RESULT(getxattr(in(p, "read"), "user.probe", buffer, sizeof buffer)); }
static int do_listxattr(struct probe *p) { return RESULT(listxattr(in(p, "read"), buffer, sizeof buffer)); }
static int do_setxattr(struct probe *p) { return RESULT(setxattr(in(p, "attributes"), "user.set", "v", 1, 0)); }
static int do_removexattr(struct probe *p) {
    int result = RESULT(removexattr(in(p, "attributes"), "user.probe"));
    if (result == DONE) setxattr(in(p, "attributes"), "user.probe", "value", 5, 0);
    return result;
}
static int do_execve(struct probe *p) { return run_program(in(p, "prog"), "exit"); }
static int do_chdir(struct probe *p) {
    int here = open(".", O_PATH | O_CLOEXEC);
    int result = RESULT(chdir(in(p, "sub")));
    if (result == DONE && fchdir(here)) result = errno;
    if (here >= 0) close(here);
    return result;
}
static int do_watch(struct probe *p) { return RESULT(inotify_add_watch(p->inotify_fd, in(p, "sub"), IN_CREATE)); }
// Changes the existing watch, for which the kernel walks the path again.
static int do_watch_again(struct probe *p) { return RESULT(inotify_add_watch(p->inotify_fd, in(p, "listed"), IN_ALL_EVENTS)); }
static int do_connect(struct probe *p) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", p->dir) >= (int)sizeof address.sun_path) return SKIPPED;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = RESULT(connect(fd, (struct sockaddr *)&address, sizeof address));
    close(fd);
    return result;
}

const struct access path_accesses[] = {
    {"path", "open-and-read", AFTER_REFUSED, false, do_read},
    {"path", "open-for-writing", AFTER_REFUSED, true, do_open_write},
    {"path", "open-rdwr", AFTER_REFUSED, true, do_open_rdwr},
    {"path", "open-append", AFTER_REFUSED, true, do_open_append},
    {"path", "open-o_trunc", AFTER_REFUSED, true, do_open_truncate},
    {"path", "open-o_creat-existing", AFTER_REFUSED, false, do_open_existing},
    {"path", "open-fifo", AFTER_REFUSED, false, do_open_fifo},
    {"path", "open-o_path", AFTER_REFUSED, false, do_open_path},
    {"path", "open-deep", AFTER_REFUSED, false, do_open_deep},
    {"path", "open-through-link", AFTER_REFUSED, false, do_open_link},
    {"path", "open-grant", AFTER_REFUSED, false, do_open_top},
    {"path", "stat-grant", AFTER_REFUSED, false, do_stat_top},
    {"path", "stat", AFTER_REFUSED, false, do_stat},
    {"path", "lstat", AFTER_REFUSED, false, do_lstat},
    {"path", "stat-absent", AFTER_REFUSED, false, do_stat_absent},
    {"path", "access-read", AFTER_REFUSED, false, do_access},
    // With default_permissions the kernel answers access(2) from the mode alone.
    {"path", "access-write", AFTER_REFUSED, false, do_access_write},
    {"path", "access-exists", AFTER_REFUSED, false, do_access_exists},
    {"path", "statfs", AFTER_REFUSED, false, do_statfs},
    {"path", "getdents", AFTER_REFUSED, false, do_list},
    {"path", "chmod", AFTER_REFUSED, true, do_chmod},
    {"path", "chown", AFTER_REFUSED, true, do_chown},
    {"path", "utimensat", AFTER_REFUSED, true, do_utimens},
    {"path", "truncate", AFTER_REFUSED, true, do_truncate},
    {"path", "create", AFTER_REFUSED, true, do_create},
    {"path", "mkdir", AFTER_REFUSED, true, do_mkdir},
    {"path", "rmdir", AFTER_REFUSED, true, do_rmdir},
    {"path", "mkfifo", AFTER_REFUSED, true, do_mkfifo},
    {"path", "symlink", AFTER_REFUSED, true, do_symlink},
    {"path", "link", AFTER_REFUSED, true, do_link},
    {"path", "rename", AFTER_REFUSED, true, do_rename},
    {"path", "rename-over", AFTER_REFUSED, true, do_rename_over},
    {"path", "unlink", AFTER_REFUSED, true, do_unlink},
    {"path", "readlink", AFTER_REFUSED, false, do_readlink},
    {"path", "getxattr", AFTER_REFUSED, false, do_getxattr},
    {"path", "listxattr", AFTER_REFUSED, false, do_listxattr},
    {"path", "setxattr", AFTER_REFUSED, true, do_setxattr},
    {"path", "removexattr", AFTER_REFUSED, true, do_removexattr},
    {"path", "execve", AFTER_REFUSED, false, do_execve},
    {"path", "chdir", AFTER_REFUSED, false, do_chdir},
    {"inotify", "inotify_add_watch", AFTER_REFUSED, false, do_watch},
    {"inotify", "inotify_add_watch-again", AFTER_REFUSED, false, do_watch_again},
    {"path", "connect-socket", AFTER_REFUSED, false, do_connect},
    {NULL, NULL, NULL, false, NULL},
};
