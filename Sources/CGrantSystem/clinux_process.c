#include "clinux_process.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int address_of(struct sockaddr_un *address, int directory, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", directory, name);
    return length < 0 || (size_t)length >= sizeof address->sun_path ? -ENAMETOOLONG : 0;
}

int clinux_socket_listen(int directory, const char *name, int backlog) {
    struct sockaddr_un address;
    int result = address_of(&address, directory, name);
    if (result < 0) return result;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1) return -errno;
    // bind(2) gives the name the mode of the socket: others cannot connect at any moment.
    if (fchmod(fd, 0600) == -1 || bind(fd, (struct sockaddr *)&address, sizeof address) == -1 || listen(fd, backlog) == -1) {
        result = -errno;
        close(fd);
        return result;
    }
    return fd;
}

int clinux_socket_connect(int directory, const char *name) {
    struct sockaddr_un address;
    int result = address_of(&address, directory, name);
    if (result < 0) return result;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1) return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == -1) {
        result = -errno;
        close(fd);
        return result;
    }
    return fd;
}

int clinux_socket_accept(int fd) {
    int result = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return result == -1 ? -errno : result;
}

int clinux_socket_pair(int ends[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == -1 ? -errno : 0;
}

int clinux_socket_peer(int fd, pid_t *pid, uid_t *uid, gid_t *gid) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == -1) return -errno;
    *pid = peer.pid;
    *uid = peer.uid;
    *gid = peer.gid;
    return 0;
}

ssize_t clinux_socket_send(int fd, const void *data, size_t size) {
    ssize_t result = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return result == -1 ? -errno : result;
}

ssize_t clinux_socket_receive(int fd, void *data, size_t size) {
    ssize_t result = recv(fd, data, size, MSG_DONTWAIT);
    return result == -1 ? -errno : result;
}

int clinux_socket_send_descriptors(int fd, const int *descriptors, int count) {
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * CLINUX_DESCRIPTORS_AT_ONCE)];
        struct cmsghdr header;
    } control;
    if (count < 1 || count > CLINUX_DESCRIPTORS_AT_ONCE) return -EINVAL;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
    message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(header), descriptors, sizeof(int) * (size_t)count);
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 ? -errno : 1;
}

int clinux_socket_receive_descriptors(int fd, int *descriptors, int most) {
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * CLINUX_DESCRIPTORS_AT_ONCE)];
        struct cmsghdr header;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t result = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (result == -1) return -errno;
    if (result == 0) return -ECONNRESET;
    int count = 0;
    bool is_whole = (message.msg_flags & MSG_CTRUNC) == 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        int found = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int index = 0; index < found; index++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + sizeof(int) * (size_t)index, sizeof descriptor);
            if (count < most) {
                descriptors[count++] = descriptor;
            } else {
                close(descriptor);
                is_whole = false;
            }
        }
    }
    if (is_whole && count > 0) return count;
    // The kernel omits descriptors for which the table has no room (RLIMIT_NOFILE).
    for (int index = 0; index < count; index++) close(descriptors[index]);
    return -EBADMSG;
}

int clinux_wait(int fd, bool writing, int other, int milliseconds) {
    struct pollfd entries[2] = {{.fd = fd, .events = writing ? POLLOUT : POLLIN}, {.fd = other, .events = POLLIN}};
    int result = poll(entries, 2, milliseconds);
    if (result == -1) return -errno;
    if (result == 0) return 0;
    return entries[1].revents != 0 ? 2 : 1;
}

int clinux_memory_file(const void *data, size_t size) {
    int fd = memfd_create("grantfs", MFD_CLOEXEC);
    if (fd == -1) return -errno;
    for (size_t done = 0; done < size;) {
        ssize_t result = pwrite(fd, (const char *)data + done, size - done, (off_t)done);
        if (result == -1) {
            int error = errno;
            close(fd);
            return -error;
        }
        done += (size_t)result;
    }
    return fd;
}

int clinux_open_standard_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1) continue;
        // The lowest number that is free (open(2)).
        int opened = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        if (opened == -1) return -errno;
        if (opened != fd) return -EBADF;
    }
    return 0;
}

int clinux_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC) == -1 ? -errno : 0; }

pid_t clinux_spawn(const char *path, int program, char *const arguments[], char *const environment[], int manner, int errors,
                   const int descriptors[], int count) {
    bool detached = manner & clinux_SPAWN_DETACHED;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (detached ? POSIX_SPAWN_SETSID : 0) |
                                              (manner & clinux_SPAWN_GROUP ? POSIX_SPAWN_SETPGROUP : 0));
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // Before the others, which may take its number.
    if (errors != -1) posix_spawn_file_actions_adddup2(&actions, errors, 2);
    if (manner & clinux_SPAWN_SILENT) posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (manner & (clinux_SPAWN_DETACHED | clinux_SPAWN_SILENT)) {
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    }
    bool by_descriptor = path == NULL;
    int places = count + by_descriptor;
    // Away from the numbers that they will get.
    int *high = calloc((size_t)places + 1, sizeof *high);
    int error = high == NULL ? ENOMEM : 0, moved = 0;
    for (; error == 0 && moved < places; moved++) {
        high[moved] = fcntl(moved < count ? descriptors[moved] : program, F_DUPFD_CLOEXEC, 3 + places);
        if (high[moved] == -1) {
            error = errno;
            break;
        }
        posix_spawn_file_actions_adddup2(&actions, high[moved], 3 + moved);
    }
    // A lock or a pipe that the starter's caller left open must not live as long as the child.
    if (manner) posix_spawn_file_actions_addclosefrom_np(&actions, 3 + places);
    char opened[sizeof "/proc/self/fd/-2147483648"];
    if (by_descriptor) {
        // Opened again at the lowest free number, it is closed by execve(2).
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", 3 + count);
        posix_spawn_file_actions_addopen(&actions, 3 + places, opened, O_PATH | O_CLOEXEC, 0);
        posix_spawn_file_actions_addclose(&actions, 3 + count);
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", 3 + places);
        path = opened;
    }
    pid_t pid = 0;
    if (error == 0) error = posix_spawnp(&pid, path, &actions, &attributes, arguments, environment ? environment : environ);
    while (moved > 0) close(high[--moved]);
    free(high);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error != 0 ? -error : pid;
}

int clinux_wait_for_child(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) == -1) {
        if (errno != EINTR) return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int clinux_child_has_ended(pid_t pid) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == -1) return -errno;
    return info.si_pid == pid;
}

void clinux_await_end_of_child(pid_t pid) {
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == -1 && errno == EINTR) continue;
}

// <linux/kcmp.h>, from 3.5 on. libc6-dev installs no header with it.
enum { KCMP_OF_FILES = 2, KCMP_OF_VM = 1, KCMP_OF_FS = 3 };

bool clinux_threads_share(pid_t one, pid_t other, int what) {
    int type = what == clinux_SHARED_FILES ? KCMP_OF_FILES : what == clinux_SHARED_MEMORY ? KCMP_OF_VM : KCMP_OF_FS;
    return syscall(SYS_kcmp, one, other, type, 0, 0) == 0;
}

// The same on every architecture, from Linux 5.1 and 5.3 on.
#define PIDFD_SEND_SIGNAL_CALL 424
#define PIDFD_OPEN_CALL 434

#ifdef __x86_64__
enum { OTHER_READDIR = 89, OTHER_GETDENTS = 141, OTHER_GETDENTS64 = 220 };
#else
enum { OTHER_READDIR = 89, OTHER_GETDENTS = 141, OTHER_GETDENTS64 = 217 };
#endif

bool clinux_is_listing(long number, unsigned long size) {
    if (number == SYS_getdents64) return true;
#ifdef SYS_getdents
    if (number == SYS_getdents) return true;
#endif
    if (number == OTHER_READDIR) return true;
    // semtimedop(2) has this number too, and there the size is its few operations.
    enum { SMALLEST_ENTRY = 24 };
    return (number == OTHER_GETDENTS || number == OTHER_GETDENTS64) && size >= SMALLEST_ENTRY;
}

int clinux_process_open(pid_t pid) {
    long fd = syscall(PIDFD_OPEN_CALL, pid, 0);
    return fd == -1 ? -errno : (int)fd;
}

int clinux_process_signal(int fd, int signal) { return syscall(PIDFD_SEND_SIGNAL_CALL, fd, signal, NULL, 0) == -1 ? -errno : 0; }

void clinux_keep_memory_small(void) {
#ifdef __GLIBC__
    // The default value, but set: otherwise it grows to twice the largest block that was ever
    // freed, for each thread's heap.
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
#endif
}

void clinux_trim_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int clinux_terminal_make(int ends[2]) {
    int outer = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (outer == -1) return -errno;
    int inner = grantpt(outer) == -1 || unlockpt(outer) == -1 ? -1 : ioctl(outer, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (inner == -1) {
        int error = errno;
        close(outer);
        return -error;
    }
    ends[0] = outer;
    ends[1] = inner;
    return 0;
}

int clinux_terminal_copy_size(int from, int to) {
    struct winsize size;
    return ioctl(from, TIOCGWINSZ, &size) == -1 || ioctl(to, TIOCSWINSZ, &size) == -1 ? -errno : 0;
}

int clinux_terminal_control(int fd) { return setsid() == -1 || ioctl(fd, TIOCSCTTY, 0) == -1 ? -errno : 0; }
