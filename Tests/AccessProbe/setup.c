#include "probe.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

static const char *const files[] = {
    "read", "write", "rdwr", "append", "direct", "target", "map", "map-untouched", "map-write", "map-write-untouched", "map-private",
    "map-copied", "map-locked", "unlinked", "locked", "path", "victim", "left", "right", "moved", "attributes", "close", "ring",
};

unsigned char pattern(size_t offset) { return (unsigned char)('a' + offset % 23); }

int check_pattern(const unsigned char *bytes, ssize_t count, size_t offset) {
    if (count < 0) return errno;
    if (count == 0) return WRONG;
    for (ssize_t i = 0; i < count; i++)
        if (bytes[i] != pattern(offset + (size_t)i)) return WRONG;
    return DONE;
}

const char *in(struct probe *p, const char *name) {
    static __thread char buffers[4][PATH_MAX];
    static __thread unsigned next;
    char *buffer = buffers[next++ % 4];
    snprintf(buffer, PATH_MAX, "%s/%s", p->dir, name);
    return buffer;
}

static void make_file(int dir, const char *name, uid_t uid, gid_t gid) {
    unsigned char bytes[FILE_SIZE];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = pattern(i);
    int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) return;  // another probe may be holding it
    if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || fchmod(fd, 0644) || fchown(fd, uid, gid)) fail(name);
    fsetxattr(fd, "user.probe", "value", 5, 0);
    close(fd);
}

static void make_program(int dir, uid_t uid, gid_t gid) {
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = openat(dir, "prog", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
    if (to < 0 && errno == EEXIST) {
        close(from);
        return;
    }
    if (from < 0 || to < 0) fail("prog");
    char buffer[65536];
    for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;)
        if (write(to, buffer, (size_t)n) != n) fail("prog");
    if (fchmod(to, 0755) || fchown(to, uid, gid)) fail("prog");
    close(from);
    close(to);
}

// Makes all files that `run` needs, directly in the granted directory, so that no mount has seen
// them.
int set_up(const char *dir, uid_t uid, gid_t gid) {
    int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fchown(root, uid, gid) || fchmod(root, 0755)) fail(dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) make_file(root, files[i], uid, gid);
    make_program(root, uid, gid);
    static const char *const directories[] = {"sub", "listed", "cwd", "empty", "gone"};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        if ((mkdirat(root, directories[i], 0755) && errno != EEXIST) || fchownat(root, directories[i], uid, gid, 0)) fail(directories[i]);
    make_file(root, "sub/inner", uid, gid);
    make_file(root, "cwd/here", uid, gid);
    for (int i = 0; i < LISTED; i++) {
        char name[NAMES];
        snprintf(name, sizeof name, "listed/entry-%02d", i);
        int fd = openat(root, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0 || fchown(fd, uid, gid)) fail(name);
        close(fd);
    }
    if ((mkfifoat(root, "fifo", 0644) && errno != EEXIST) || fchownat(root, "fifo", uid, gid, 0)) fail("fifo");
    if ((symlinkat("read", root, "link") && errno != EEXIST) || fchownat(root, "link", uid, gid, AT_SYMLINK_NOFOLLOW)) fail("link");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", root);
    unlinkat(root, "socket", 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || fchownat(root, "socket", uid, gid, 0)) fail("socket");
    return 0;
}

static int opened(struct probe *p, const char *name, int flags) {
    int fd = open(in(p, name), flags | O_CLOEXEC);
    if (fd < 0) fail(name);
    return fd;
}

// The same file as `fd`, received through a socket.
static int passed(int fd) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair)) fail("socketpair");
    char byte = 0;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (sendmsg(pair[0], &message, 0) != 1 || recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) != 1) fail("passing a descriptor");
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    close(pair[0]);
    close(pair[1]);
    return fd;
}

static unsigned char *mapped(struct probe *p, const char *name, int protection, int flags) {
    int fd = opened(p, name, (protection & PROT_WRITE) && !(flags & MAP_PRIVATE) ? O_RDWR : O_RDONLY);
    unsigned char *address = mmap(NULL, FILE_SIZE, protection, flags, fd, 0);
    close(fd);
    if (address == MAP_FAILED && errno == ENODEV) return NULL;  // its rows are skipped, which never equals OK
    if (address == MAP_FAILED) fail(name);
    return address;
}

static void map_everything(struct probe *p) {
    p->map_touched = mapped(p, "map", PROT_READ, MAP_SHARED);
    p->map_untouched = mapped(p, "map-untouched", PROT_READ, MAP_SHARED);
    p->map_write = mapped(p, "map-write", PROT_READ | PROT_WRITE, MAP_SHARED);
    p->map_write_untouched = mapped(p, "map-write-untouched", PROT_READ | PROT_WRITE, MAP_SHARED);
    p->map_private = mapped(p, "map-private", PROT_READ, MAP_PRIVATE);
    p->map_copied = mapped(p, "map-copied", PROT_READ | PROT_WRITE, MAP_PRIVATE);
    p->map_locked = mapped(p, "map-locked", PROT_READ, MAP_SHARED);
    p->map_exec = mapped(p, "prog", PROT_READ | PROT_EXEC, MAP_PRIVATE);
    store(p->map_copied, 0);
    if (p->cold) return;
    for (size_t offset = 0; offset < FILE_SIZE; offset += PAGE) {
        touch(p->map_touched, offset);
        touch(p->map_private, offset);
        store(p->map_write, offset);
    }
    // If memory may not be locked, the row is skipped, because an unlocked page would pass it
    // wrongly.
    if (p->map_locked && mlock(p->map_locked, PAGE)) p->map_locked = NULL;
}

static void warm(struct probe *p) {
    unsigned char buffer[FILE_SIZE];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = open(in(p, files[i]), O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;  // “unlinked” no longer exists
        if (read(fd, buffer, sizeof buffer) < 0) fail(files[i]);
        struct stat st;
        fstat(fd, &st);
        fgetxattr(fd, "user.probe", buffer, sizeof buffer);
        close(fd);
    }
    static const char *const directories[] = {"sub", "listed", "cwd", "."};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        for (int pass = 0; pass < 2; pass++) {
            int fd = opened(p, directories[i], O_RDONLY | O_DIRECTORY);
            while (getdents64(fd, buffer, sizeof buffer) > 0) {}
            close(fd);
        }
    struct stat st;
    stat(in(p, "absent"), &st);
    stat(in(p, "sub/inner"), &st);
    stat(in(p, "link"), &st);
    access(in(p, "read"), R_OK);
    if (readlink(in(p, "link"), (char *)buffer, sizeof buffer) < 0) fail("link");
    if (pread(p->read_fd, buffer, sizeof buffer, 0) < 0 || pread(p->unlinked_fd, buffer, sizeof buffer, 0) < 0) fail("warming");
    while (getdents64(p->list_fd, buffer, sizeof buffer) > 0) {}
}

void hold(struct probe *p) {
    p->read_fd = opened(p, "read", O_RDONLY);
    p->write_fd = opened(p, "write", O_WRONLY);
    p->rdwr_fd = opened(p, "rdwr", O_RDWR);
    p->append_fd = opened(p, "append", O_WRONLY | O_APPEND);
    p->direct_fd = open(in(p, "direct"), O_RDWR | O_DIRECT | O_CLOEXEC);
    p->dup_fd = dup(p->read_fd);
    p->passed_fd = passed(p->read_fd);
    p->target_fd = opened(p, "target", O_RDWR);
    p->path_fd = opened(p, "path", O_PATH);
    p->path_dir_fd = opened(p, "sub", O_PATH | O_DIRECTORY);
    p->link_fd = opened(p, "link", O_PATH | O_NOFOLLOW);
    p->prog_fd = opened(p, "prog", O_PATH);
    p->dir_fd = opened(p, ".", O_RDONLY | O_DIRECTORY);
    p->list_fd = opened(p, "listed", O_RDONLY | O_DIRECTORY);
    p->unlinked_fd = opened(p, "unlinked", O_RDWR);
    p->unlinked_dir_fd = opened(p, "gone", O_RDONLY | O_DIRECTORY);
    p->flock_fd = opened(p, "locked", O_RDWR);
    p->posix_fd = opened(p, "locked", O_RDWR);
    p->ofd_fd = opened(p, "locked", O_RDWR);
    p->close_fd = opened(p, "close", O_RDWR);
    p->fifo_fd = opened(p, "fifo", O_RDWR | O_NONBLOCK);
    if (unlink(in(p, "unlinked")) || rmdir(in(p, "gone"))) fail("unlinking");
    p->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    p->memory_fd = memfd_create("probe", MFD_CLOEXEC);
    p->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (p->null_fd < 0 || p->memory_fd < 0 || p->inotify_fd < 0) fail("a descriptor");
    if (inotify_add_watch(p->inotify_fd, in(p, "listed"), IN_ALL_EVENTS) < 0) fail("watching");
    p->handle = calloc(1, sizeof *p->handle + MAX_HANDLE_SZ);
    p->handle->handle_bytes = MAX_HANDLE_SZ;
    int mount;
    if (name_to_handle_at(p->read_fd, "", p->handle, &mount, AT_EMPTY_PATH)) p->handle->handle_bytes = 0;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    if (fcntl(p->posix_fd, F_SETLK, &lock)) fail("locking");
    map_everything(p);
    start_text_child(p);
    if (!p->cold) warm(p);
    if (chdir(in(p, "cwd"))) fail("cwd");
}
