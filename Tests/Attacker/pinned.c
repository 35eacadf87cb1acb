// pinned FILE PLACE SOURCE COUNT [lease | run]: starts COUNT direct reads from SOURCE into a shared
// mapping of FILE at PLACE. SOURCE's filesystem does not reply. The mapping is then unmapped and
// FILE closed for writing.
// The pages stay pinned. Each completed read makes them dirty when no descriptor is left to write
// them back.
// After a line it maps FILE again by a descriptor that was open for reading, and prints how many
// pages show the former bytes. It prints “answered” when all reads have completed. With “lease” it
// holds a read lease and removes it after the second line. With “run” a process runs from FILE
// until then.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16 };
static sigjmp_buf back;
static char *memory, former[PAGES * PAGE];
static int source, count_of_reads;
static atomic_int answered;

static void caught(int number) { siglongjmp(back, number); }

static void *read_source(void *unused) {
    (void)unused;
    (void)!pread(source, memory, PAGES * PAGE, 0);
    if (atomic_fetch_add(&answered, 1) + 1 == count_of_reads) {
        puts("answered");
        fflush(stdout);
    }
    return NULL;
}

int attack_pinned(int count, char **arguments) {
    if (count != 4 && count != 5) return 2;
    int kept = open(arguments[0], O_RDONLY | O_CLOEXEC);
    int file = open(arguments[0], O_RDWR | O_CLOEXEC);
    if (kept < 0 || file < 0) attack_failed(arguments[0]);
    source = open(arguments[2], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (source < 0) attack_failed(arguments[2]);
    off_t place = atol(arguments[1]);
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, place);
    if (memory == MAP_FAILED) attack_failed("mmap");
    memcpy(former, memory, sizeof former);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    count_of_reads = atoi(arguments[3]);
    for (int number = 0; number < count_of_reads; number++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, &small, read_source, NULL))) attack_failed("pthread_create");
    }
    // The reads pin their pages before they are sent. The test looks for the requests.
    puts("reading");
    fflush(stdout);
    if (!attack_wait()) return 0;
    munmap(memory, PAGES * PAGE);
    close(file);
    signal(SIGIO, SIG_IGN);
    pid_t process = 0;
    if (count == 5 && !strcmp(arguments[4], "lease") && fcntl(kept, F_SETLEASE, F_RDLCK)) attack_failed("lease");
    if (count == 5 && !strcmp(arguments[4], "run")) {
        char *words[] = {"sleep", "600", NULL};
        if ((errno = posix_spawn(&process, arguments[0], NULL, NULL, words, NULL))) attack_failed("posix_spawn");
        // The program has loaded all its pages when it sleeps.
        usleep(300000);
    }
    attack_ready();
    signal(SIGBUS, caught);
    int lines = 0;
    while (attack_wait()) {
        volatile int found = 0;
        volatile char *again = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, kept, place);
        if (again != MAP_FAILED)
            for (volatile int page = 0; page < PAGES; page++)
                if (!sigsetjmp(back, 1)) {
                    // The reads change the first bytes.
                    found += !memcmp((const char *)again + page * PAGE + PAGE / 2, former + page * PAGE + PAGE / 2, PAGE / 2);
                }
        printf("%d pages\n", found);
        fflush(stdout);
        if (++lines != 2) continue;
        if (process > 0 && !kill(process, SIGKILL)) waitpid(process, NULL, 0);
        fcntl(kept, F_SETLEASE, F_UNLCK);
    }
    return 0;
}
