#include "probe.h"
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <linux/openat2.h>

static char buffer[FILE_SIZE];

static int count_entries(int fd) {
    if (lseek(fd, 0, SEEK_SET) < 0) return errno;
    ssize_t n, total = 0;
    while ((n = getdents64(fd, buffer, sizeof buffer)) > 0) total += n;
    if (n < 0) return errno;
    return total > 0 ? DONE : WRONG;
}
static int opened_and_closed(int fd) {
    if (fd < 0) return errno;
    close(fd);
    return DONE;
}
static const char *fresh(struct probe *p, const char *stem) {
    static char name[NAMES];
    snprintf(name, sizeof name, "%s-%u-%d", stem, p->round, (int)getpid());
    return name;
}
static int do_getdents(struct probe *p) { return count_entries(p->list_fd); }
static int do_getdents_unlinked(struct probe *p) { return RESULT(fsync(p->unlinked_dir_fd)); }
static int do_fstat_unlinked(struct probe *p) {
    struct stat st;
    return RESULT(fstat(p->unlinked_dir_fd, &st));
}
static int do_fstat(struct probe *p) {
    struct stat st;
    return RESULT(fstat(p->dir_fd, &st));
}
static int do_fstatat(struct probe *p) {
    struct stat st;
    return RESULT(fstatat(p->dir_fd, "read", &st, 0));
}
static int do_statx(struct probe *p) {
    struct statx sx;
    return RESULT(statx(p->dir_fd, "read", 0, STATX_BASIC_STATS, &sx));
}
static int do_fstatfs(struct probe *p) {
    struct statfs sf;
    return RESULT(fstatfs(p->dir_fd, &sf));
}
static int do_openat(struct probe *p) { return opened_and_closed(openat(p->dir_fd, "read", O_RDONLY | O_CLOEXEC)); }
static int do_openat_deep(struct probe *p) { return opened_and_closed(openat(p->dir_fd, "sub/inner", O_RDONLY | O_CLOEXEC)); }
static int do_openat_write(struct probe *p) { return opened_and_closed(openat(p->dir_fd, "write", O_WRONLY | O_CLOEXEC)); }
static int do_openat_self(struct probe *p) { return opened_and_closed(openat(p->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int do_openat_up(struct probe *p) { return opened_and_closed(openat(p->list_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int do_openat_path(struct probe *p) { return opened_and_closed(openat(p->dir_fd, "sub", O_PATH | O_CLOEXEC)); }
static int do_openat2(struct probe *p) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
    return opened_and_closed((int)syscall(SYS_openat2, p->dir_fd, "read", &how, sizeof how));
}
static int do_tmpfile(struct probe *p) { return opened_and_closed(openat(p->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)); }
static int do_create(struct probe *p) {
    const char *name = fresh(p, "created");
    int result = opened_and_closed(openat(p->dir_fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    if (result == DONE) unlinkat(p->dir_fd, name, 0);
    return result;
}
static int do_mkdirat(struct probe *p) {
    const char *name = fresh(p, "made");
    int result = RESULT(mkdirat(p->dir_fd, name, 0700));
    if (result == DONE) unlinkat(p->dir_fd, name, AT_REMOVEDIR);
    return result;
}
static int do_mknodat(struct probe *p) {
    const char *name = fresh(p, "node");
    int result = RESULT(mknodat(p->dir_fd, name, S_IFIFO | 0600, 0));
    if (result == DONE) unlinkat(p->dir_fd, name, 0);
    return result;
}
static int do_symlinkat(struct probe *p) {
    const char *name = fresh(p, "symlink");
    int result = RESULT(symlinkat("read", p->dir_fd, name));
    if (result == DONE) unlinkat(p->dir_fd, name, 0);
    return result;
}
static int do_linkat(struct probe *p) {
    const char *name = fresh(p, "hardlink");
    int result = RESULT(linkat(p->dir_fd, "left", p->dir_fd, name, 0));
    if (result == DONE) unlinkat(p->dir_fd, name, 0);
    return result;
}
static int do_unlinkat(struct probe *p) {
    int result = RESULT(unlinkat(p->dir_fd, "victim", 0));
    if (result == DONE) opened_and_closed(openat(p->dir_fd, "victim", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    return result;
}
static int do_rmdir(struct probe *p) {
    int result = RESULT(unlinkat(p->dir_fd, "empty", AT_REMOVEDIR));
    if (result == DONE) mkdirat(p->dir_fd, "empty", 0755);
    return result;
}
static int do_renameat(struct probe *p) {
    int result = RESULT(renameat(p->dir_fd, "moved", p->dir_fd, "moved-away"));
    if (result == DONE) renameat(p->dir_fd, "moved-away", p->dir_fd, "moved");
    return result;
}
static int do_exchange(struct probe *p) {
    int result = RESULT(renameat2(p->dir_fd, "left", p->dir_fd, "right", RENAME_EXCHANGE));
    if (result == DONE) renameat2(p->dir_fd, "left", p->dir_fd, "right", RENAME_EXCHANGE);
    return result;
}
static int do_noreplace(struct probe *p) {
    int result = RESULT(renameat2(p->dir_fd, "moved", p->dir_fd, "moved-away", RENAME_NOREPLACE));
    if (result == DONE) renameat(p->dir_fd, "moved-away", p->dir_fd, "moved");
    return result;
}
static int do_faccessat(struct probe *p) { return RESULT(faccessat(p->dir_fd, "read", R_OK, 0)); }
static int do_readlinkat(struct probe *p) { return RESULT(readlinkat(p->dir_fd, "link", buffer, sizeof buffer)); }
static int do_fchmodat(struct probe *p) { return RESULT(fchmodat(p->dir_fd, "attributes", 0644, 0)); }
static int do_fchownat(struct probe *p) { return RESULT(fchownat(p->dir_fd, "attributes", geteuid(), getegid(), 0)); }
static int do_utimensat(struct probe *p) { return RESULT(utimensat(p->dir_fd, "attributes", NULL, 0)); }
static int do_fsync(struct probe *p) { return RESULT(fsync(p->dir_fd)); }
static int do_fchmod(struct probe *p) { return RESULT(fchmod(p->list_fd, 0755)); }
static int do_fchdir(struct probe *p) {
    int here = open(".", O_PATH | O_CLOEXEC);
    int result = RESULT(fchdir(p->dir_fd));
    if (result == DONE && fchdir(here)) result = errno;
    if (here >= 0) close(here);
    return result;
}
static int do_path_openat(struct probe *p) { return opened_and_closed(openat(p->path_dir_fd, "inner", O_RDONLY | O_CLOEXEC)); }
static int do_path_fstat(struct probe *p) {
    struct stat st;
    return RESULT(fstat(p->path_dir_fd, &st));
}
static int do_path_fstatat(struct probe *p) {
    struct stat st;
    return RESULT(fstatat(p->path_dir_fd, "inner", &st, 0));
}
static int do_path_reopen(struct probe *p) { return opened_and_closed(openat(p->path_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
static int do_path_fchdir(struct probe *p) {
    int here = open(".", O_PATH | O_CLOEXEC);
    int result = RESULT(fchdir(p->path_dir_fd));
    if (result == DONE && fchdir(here)) result = errno;
    if (here >= 0) close(here);
    return result;
}
static int do_path_statfs(struct probe *p) {
    struct statfs sf;
    return RESULT(fstatfs(p->path_dir_fd, &sf));
}
static int do_cwd_stat(struct probe *p) {
    (void)p;
    struct stat st;
    return RESULT(stat(".", &st));
}
static int do_cwd_stat_entry(struct probe *p) {
    (void)p;
    struct stat st;
    return RESULT(stat("here", &st));
}
static int do_cwd_open(struct probe *p) {
    (void)p;
    return opened_and_closed(open("here", O_RDONLY | O_CLOEXEC));
}
static int do_cwd_list(struct probe *p) {
    (void)p;
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = count_entries(fd);
    close(fd);
    return result;
}
static int do_cwd_up(struct probe *p) {
    (void)p;
    return opened_and_closed(open("../read", O_RDONLY | O_CLOEXEC));
}
static int do_cwd_create(struct probe *p) {
    const char *name = fresh(p, "from-cwd");
    int result = opened_and_closed(open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    if (result == DONE) unlink(name);
    return result;
}
static int do_cwd_chdir(struct probe *p) {
    (void)p;
    return RESULT(chdir("."));
}
static int do_cwd_proc(struct probe *p) {
    (void)p;
    return opened_and_closed(open("/proc/self/cwd/here", O_RDONLY | O_CLOEXEC));
}
static int do_getcwd(struct probe *p) {
    (void)p;
    return getcwd(buffer, sizeof buffer) ? DONE : errno;
}

const struct access directory_accesses[] = {
    {"dirfd", "getdents", AFTER_REFUSED, false, do_getdents},
    {"dirfd-unlinked", "fsync", AFTER_REFUSED, false, do_getdents_unlinked},
    {"dirfd-unlinked", "fstat", AFTER_REFUSED, false, do_fstat_unlinked},
    {"dirfd", "fstat", AFTER_REFUSED, false, do_fstat},
    {"dirfd", "fstatat", AFTER_REFUSED, false, do_fstatat},
    {"dirfd", "statx", AFTER_REFUSED, false, do_statx},
    {"dirfd", "fstatfs", AFTER_REFUSED, false, do_fstatfs},
    {"dirfd", "openat", AFTER_REFUSED, false, do_openat},
    {"dirfd", "openat-deep", AFTER_REFUSED, false, do_openat_deep},
    {"dirfd", "openat-for-writing", AFTER_REFUSED, true, do_openat_write},
    {"dirfd", "openat-dot", AFTER_REFUSED, false, do_openat_self},
    {"dirfd", "openat-dotdot", AFTER_REFUSED, false, do_openat_up},
    {"dirfd", "openat-o_path", AFTER_REFUSED, false, do_openat_path},
    {"dirfd", "openat2-beneath", AFTER_REFUSED, false, do_openat2},
    {"dirfd", "openat-o_tmpfile", AFTER_FAILS, true, do_tmpfile},
    {"dirfd", "create", AFTER_REFUSED, true, do_create},
    {"dirfd", "mkdirat", AFTER_REFUSED, true, do_mkdirat},
    {"dirfd", "mknodat", AFTER_REFUSED, true, do_mknodat},
    {"dirfd", "symlinkat", AFTER_REFUSED, true, do_symlinkat},
    {"dirfd", "linkat", AFTER_REFUSED, true, do_linkat},
    {"dirfd", "unlinkat", AFTER_REFUSED, true, do_unlinkat},
    {"dirfd", "unlinkat-directory", AFTER_REFUSED, true, do_rmdir},
    {"dirfd", "renameat", AFTER_REFUSED, true, do_renameat},
    {"dirfd", "renameat2-exchange", AFTER_REFUSED, true, do_exchange},
    {"dirfd", "renameat2-noreplace", AFTER_REFUSED, true, do_noreplace},
    {"dirfd", "faccessat", AFTER_REFUSED, false, do_faccessat},
    {"dirfd", "readlinkat", AFTER_REFUSED, false, do_readlinkat},
    {"dirfd", "fchmodat", AFTER_REFUSED, true, do_fchmodat},
    {"dirfd", "fchownat", AFTER_REFUSED, true, do_fchownat},
    {"dirfd", "utimensat", AFTER_REFUSED, true, do_utimensat},
    {"dirfd", "fsync", AFTER_REFUSED, false, do_fsync},
    {"dirfd", "fchmod", AFTER_REFUSED, true, do_fchmod},
    {"dirfd", "fchdir", AFTER_REFUSED, false, do_fchdir},
    {"o_path-directory", "openat", AFTER_REFUSED, false, do_path_openat},
    {"o_path-directory", "fstat", AFTER_REFUSED, false, do_path_fstat},
    {"o_path-directory", "fstatat", AFTER_REFUSED, false, do_path_fstatat},
    {"o_path-directory", "openat-dot", AFTER_REFUSED, false, do_path_reopen},
    {"o_path-directory", "fchdir", AFTER_REFUSED, false, do_path_fchdir},
    {"o_path-directory", "fstatfs", AFTER_REFUSED, false, do_path_statfs},
    {"cwd", "stat-dot", AFTER_REFUSED, false, do_cwd_stat},
    {"cwd", "stat", AFTER_REFUSED, false, do_cwd_stat_entry},
    {"cwd", "open", AFTER_REFUSED, false, do_cwd_open},
    {"cwd", "getdents", AFTER_REFUSED, false, do_cwd_list},
    {"cwd", "open-dotdot", AFTER_REFUSED, false, do_cwd_up},
    {"cwd", "create", AFTER_REFUSED, true, do_cwd_create},
    {"cwd", "chdir-dot", AFTER_REFUSED, false, do_cwd_chdir},
    {"cwd", "open-proc-cwd", AFTER_REFUSED, false, do_cwd_proc},
    {"cwd", "getcwd", AFTER_OPEN, false, do_getcwd},
    {NULL, NULL, NULL, false, NULL},
};
