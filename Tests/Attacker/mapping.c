// mapping FILE HOW: maps FILE and touches its first page. After each line it touches the first and the second page, and
// prints OK or SIGBUS for each. HOW: private, shared, mergeable (KSM) or locked.
#include "attacker.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
static sigjmp_buf back;
static void caught(int number) { siglongjmp(back, number); }

static const char *touch(const volatile char *place) {
    if (sigsetjmp(back, 1)) return "SIGBUS";
    (void)*place;
    return "OK";
}

int attack_mapping(int count, char **arguments) {
    if (count != 2) return 2;
    const char *how = arguments[1];
    int fd = open(arguments[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0) attack_failed(arguments[0]);
    int kind = strcmp(how, "shared") ? MAP_PRIVATE : MAP_SHARED;
    char *memory = mmap(NULL, 2 * PAGE, PROT_READ, kind, fd, 0);
    if (memory == MAP_FAILED) attack_failed("mmap");
    if (!strcmp(how, "mergeable") && madvise(memory, 2 * PAGE, MADV_MERGEABLE)) attack_failed("MADV_MERGEABLE");
    if (!strcmp(how, "locked") && mlock(memory, 2 * PAGE)) attack_failed("mlock");
    signal(SIGBUS, caught);
    touch(memory);
    attack_ready();
    while (attack_wait()) {
        const char *first = touch(memory), *second = touch(memory + PAGE);
        printf("%s %s\n", first, second);
        fflush(stdout);
    }
    return 0;
}
