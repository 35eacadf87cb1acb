// hung-source DIRECTORY MOUNTPOINT CONTROL: shows DIRECTORY at MOUNTPOINT, in the foreground. While the file CONTROL exists, the
// operations that it names (all of them when it is empty) do not return. They go on when it is removed.
#include "hung.h"
#include <fcntl.h>
#include <stdio.h>

int main(int count, char **arguments) {
    if (count != 4) {
        fputs("usage: hung-source DIRECTORY MOUNTPOINT CONTROL\n", stderr);
        return 2;
    }
    root = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        perror(arguments[1]);
        return 1;
    }
    set_control_file(arguments[3]);
    char *words[] = {arguments[0], "-f", "-o", "max_threads=2000,max_idle_threads=8,subtype=hung,fsname=hung", arguments[2], NULL};
    return fuse_main(5, words, &operations, NULL);
}
