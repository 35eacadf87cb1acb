// lock-pieces FILE COUNT: one owner locks every second byte of FILE. It prints the number of pieces, and the error that ended it. After
// each line on standard input it locks all bytes behind them, unlocks every second one, and prints the number of unlocks.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int set(int fd, short type, off_t start, off_t length) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, F_SETLK, &range);
}

int attack_lock_pieces(int count, char **arguments) {
    if (count < 2) return 2;
    int wanted = atoi(arguments[1]), held = 0;
    int fd = open(arguments[0], O_RDWR | O_CLOEXEC);
    if (fd == -1) attack_failed(arguments[0]);
    errno = 0;
    while (held < wanted && set(fd, F_WRLCK, (off_t)held * 2, 1) == 0) held++;
    printf("held %d %s\n", held, held < wanted ? strerrorname_np(errno) : "-");
    attack_ready();
    while (attack_wait()) {
        off_t behind = (off_t)1 << 40;
        // Each unlocked byte splits the lock of the whole range.
        int all = set(fd, F_UNLCK, 0, 0) == 0 && set(fd, F_WRLCK, behind, 0) == 0, cut = 0;
        errno = 0;
        while (all && cut < wanted && set(fd, F_UNLCK, behind + 1 + (off_t)cut * 2, 1) == 0) cut++;
        printf("cut %d %s\n", cut, cut < wanted ? strerrorname_np(errno) : "-");
        fflush(stdout);
    }
    _exit(0);
}
