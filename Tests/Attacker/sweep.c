// The worst case of another command's search for left-behind views: it takes the lock of every
// unlocked file.
#include "attacker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/// sweep DIRECTORY: takes the locks of files run-… there until its input ends, and prints how many
/// it got.
int attack_sweep(int count, char **arguments) {
    if (count != 1) return 2;
    int directory = open(arguments[0], O_RDONLY | O_DIRECTORY);
    if (directory == -1) attack_failed(arguments[0]);
    DIR *listing = fdopendir(directory);
    if (!listing) attack_failed(arguments[0]);
    attack_ready();
    int got = 0;
    for (struct pollfd input = {.fd = 0, .events = POLLIN}; poll(&input, 1, 0) == 0; rewinddir(listing)) {
        for (struct dirent *entry; (entry = readdir(listing));) {
            if (strncmp(entry->d_name, "run-", 4)) continue;
            int file = openat(directory, entry->d_name, O_RDWR | O_NOFOLLOW);
            if (file == -1) continue;
            struct stat status;
            // A file whose name was removed after the open belongs to no view.
            if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0) {
                got++;
                usleep(2000);
            }
            close(file);
        }
    }
    closedir(listing);
    printf("got %d\n", got);
    return 0;
}
