// copy FROM TO BYTES: copies in one call of copy_file_range(2) and prints the number of bytes
// copied.
#include "attacker.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int attack_copy(int count, char **arguments) {
    if (count != 3) return 2;
    int from = open(arguments[0], O_RDONLY), to = open(arguments[1], O_WRONLY | O_CREAT, 0600);
    if (from == -1 || to == -1) attack_failed("open");
    attack_ready();
    off_t source = 0, target = 0;
    printf("%zd\n", copy_file_range(from, &source, to, &target, strtoull(arguments[2], NULL, 10), 0));
    fflush(stdout);
    return 0;
}
