// outlive FILE KIND...: holds handles of a file beyond the death of its mount's daemon. After each
// line it prints the results of using them.
// KIND: `map` a shared mapping that was stored to, `fd` a descriptor, `cwd` the file's directory,
// `thread` a descriptor that only a thread with its own table has. It stores “stored” into the
// file's first bytes and writes “written” at 4096.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static sigjmp_buf back;
static void bus(int signal) { siglongjmp(back, signal); }

static const char *touch(const volatile char *page) {
    if (sigsetjmp(back, 1)) return "SIGBUS";
    return *page == 's' ? "read" : "other";
}

static void *hide(void *path) {
    if (unshare(CLONE_FILES) == -1) attack_failed("unshare");
    int fd = open(path, O_RDONLY);
    char byte;
    if (fd == -1 || pread(fd, &byte, 1, 0) != 1) attack_failed("open in a thread");
    attack_ready();
    for (;;) pause();
}

int attack_outlive(int count, char **arguments) {
    const char *path = arguments[0];
    bool map = false, keep = false, directory = false, thread = false;
    for (int i = 1; i < count; i++) {
        map |= !strcmp(arguments[i], "map");
        keep |= !strcmp(arguments[i], "fd");
        directory |= !strcmp(arguments[i], "cwd");
        thread |= !strcmp(arguments[i], "thread");
    }
    char *page = NULL;
    int fd = -1;
    if (thread) {
        pthread_t other;
        if (pthread_create(&other, NULL, hide, (void *)path)) attack_failed("pthread_create");
    } else {
        fd = open(path, O_RDWR);
        if (fd == -1) attack_failed("open");
        if (pwrite(fd, "written", 7, 4096) != 7) attack_failed("pwrite");
        if (map) {
            page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (page == MAP_FAILED) attack_failed("mmap");
            memcpy(page, "stored", 6);
        }
        char byte;
        if (pread(fd, &byte, 1, 4096) != 1) attack_failed("pread");
        if (!keep) close(fd);
        if (directory && chdir(dirname(strdup(path))) == -1) attack_failed("chdir");
        attack_ready();
    }
    signal(SIGBUS, bus);
    while (attack_wait()) {
        char byte;
        const char *mapped = page ? touch(page) : "-";
        const char *read = !keep ? "-" : pread(fd, &byte, 1, 4096) == 1 ? "read" : strerrorname_np(errno);
        struct stat st;
        const char *looked = !directory ? "-" : stat(".", &st) == 0 ? "seen" : strerrorname_np(errno);
        printf("map %s fd %s cwd %s\n", mapped, read, looked);
        fflush(stdout);
    }
    return 0;
}
