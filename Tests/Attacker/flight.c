// flight FILE: keeps a descriptor of a file only in flight in a socket (SCM_RIGHTS), where no table of /proc shows it.
// After each line it receives the descriptor and prints whether it can read the file.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} control;

static struct msghdr message(struct iovec *part) {
    struct msghdr header;
    memset(&header, 0, sizeof header);
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    return header;
}

int attack_flight(int count, char **arguments) {
    if (count < 1) return 2;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == -1) attack_failed("socketpair");
    int fd = open(arguments[0], O_RDONLY);
    char byte = 0;
    if (fd == -1 || pread(fd, &byte, 1, 0) != 1) attack_failed("open");
    struct iovec part = {&byte, 1};
    struct msghdr header = message(&part);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    if (sendmsg(ends[0], &header, 0) != 1) attack_failed("sendmsg");
    close(fd);
    attack_ready();
    if (!attack_wait()) return 0;
    header = message(&part);
    if (recvmsg(ends[1], &header, 0) != 1 || !CMSG_FIRSTHDR(&header)) attack_failed("recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fd);
    printf("%s\n", pread(fd, &byte, 1, 0) == 1 ? "read" : strerrorname_np(errno));
    fflush(stdout);
    while (attack_wait()) {}
    return 0;
}
