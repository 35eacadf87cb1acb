// hung-source DIRECTORY MOUNTPOINT CONTROL [squash]: shows DIRECTORY at MOUNTPOINT, in the
// foreground. While the file CONTROL exists, the operations that it names (all of them when it is
// empty) do not return. They continue when it is removed.
// With `squash` it is open to all users, and runs every operation as its caller, or as the
// anonymous user for root.
#include "hung.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    squashes = count == 5 && strcmp(arguments[4], "squash") == 0;
    if (count != 4 && !squashes) {
        fputs("usage: hung-source DIRECTORY MOUNTPOINT CONTROL [squash]\n", stderr);
        return 2;
    }
    root = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        perror(arguments[1]);
        return 1;
    }
    set_control_file(arguments[3]);
    umask(0);
    char *words[] = {arguments[0], "-f", "-o", "max_threads=2000,max_idle_threads=8,subtype=hung,fsname=hung", arguments[2],
                     "-oallow_other", NULL};
    return fuse_main(squashes ? 6 : 5, words, &operations, NULL);
}
