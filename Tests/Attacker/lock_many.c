// lock-many DIRECTORY COUNT: makes COUNT files in a directory, opens them and locks a byte of each
// (POSIX). Prints the number of locks, and the error that ended it.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int attack_lock_many(int count, char **arguments) {
    if (count < 2) return 2;
    int wanted = atoi(arguments[1]), held = 0, error = 0;
    attack_raise_limits();
    int directory = open(arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory == -1) attack_failed(arguments[0]);
    for (; held < wanted; held++) {
        char name[32];
        snprintf(name, sizeof name, "locked-%d", held);
        int fd = openat(directory, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        if (fd == -1 || fcntl(fd, F_SETLK, &own) == -1) {
            error = errno;
            break;
        }
    }
    printf("held %d %s\n", held, error ? strerrorname_np(error) : "-");
    attack_ready();
    while (attack_wait()) {}
    _exit(0);
}
