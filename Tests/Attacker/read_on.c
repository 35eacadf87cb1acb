// read-on FILE PAGES read|map: opens FILE, in which each page begins with “a”, for writing. Until a
// line comes it reads beginnings of pages in no order, by read(2) or by a mapping.
// Then it prints how many beginnings it has read, how many differed from “a”, and how many attempts
// were refused.
#include "attacker.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, AT_ONCE = 512 };
static sigjmp_buf back;

static void caught(int number) { siglongjmp(back, number); }

int attack_read_on(int count, char **arguments) {
    if (count != 3) return 2;
    int file = open(arguments[0], O_RDWR | O_CLOEXEC);
    if (file < 0) attack_failed(arguments[0]);
    long pages = atol(arguments[1]);
    volatile char *memory = NULL;
    if (!strcmp(arguments[2], "map")) {
        memory = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, file, 0);
        if (memory == MAP_FAILED) attack_failed("mmap");
    }
    signal(SIGBUS, caught);
    unsigned number = 1;
    volatile long read_so_far = 0, wrong = 0, refused = 0;
    // Fills the cache before a test revokes anything.
    for (long page = 0; page < pages; page++) {
        char byte;
        if (pread(file, &byte, 1, page * PAGE) != 1) attack_failed("read");
    }
    attack_ready();
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0)
        for (volatile int turn = 0; turn < AT_ONCE; turn++) {
            number = number * 1103515245 + 12345;
            long page = (number >> 8) % pages;
            char byte = 0;
            bool is_read = false;
            if (memory) {
                if (!sigsetjmp(back, 1)) {
                    byte = memory[page * PAGE];
                    is_read = true;
                }
            } else
                is_read = pread(file, &byte, 1, page * PAGE) == 1;
            if (!is_read)
                refused++;
            else if (byte == 'a')
                read_so_far++;
            else
                wrong++;
        }
    printf("%ld read, %ld wrong, %ld refused\n", read_so_far, wrong, refused);
    fflush(stdout);
    return 0;
}
