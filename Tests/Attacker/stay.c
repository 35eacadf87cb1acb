// stay DIRECTORY NAME LATER: has a directory as its working directory, and a file in it open and
// mapped. It goes on using them wherever they are moved.
// For each line it prints the results, each an errno's name, SIGBUS or OK: the working directory's
// attributes, its listing, opening NAME and LATER from it, reopening an O_PATH descriptor of NAME,
// reading and writing by the open file, loading by the mapping.
#include "attacker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static sigjmp_buf escape;

static void on_bus(int signal) {
    (void)signal;
    siglongjmp(escape, 1);
}

static const char *name(long result) { return result < 0 ? strerrorname_np(errno) : "OK"; }

static const char *list(void) {
    DIR *directory = opendir(".");
    if (!directory) return name(-1);
    errno = 0;
    const char *result = readdir(directory) || errno == 0 ? "OK" : name(-1);
    closedir(directory);
    return result;
}

static const char *opened(const char *file) {
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return name(-1);
    char byte;
    const char *result = name(read(fd, &byte, 1));
    close(fd);
    return result;
}

static const char *loaded(volatile const char *map) {
    if (sigsetjmp(escape, 1)) return "SIGBUS";
    (void)map[0];
    return "OK";
}

int attack_stay(int count, char **arguments) {
    if (count != 3) return 2;
    struct sigaction action = {.sa_handler = on_bus};
    sigaction(SIGBUS, &action, NULL);
    if (chdir(arguments[0])) attack_failed(arguments[0]);
    int fd = open(arguments[1], O_RDWR | O_CLOEXEC);
    if (fd < 0) attack_failed(arguments[1]);
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", open(arguments[1], O_PATH | O_CLOEXEC));
    volatile const char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || !strcmp(loaded(map), "SIGBUS")) attack_failed("mapping");
    attack_ready();
    while (attack_wait()) {
        struct stat status;
        char byte = 'w';
        const char *here = name(stat(".", &status)), *listed = list(), *open = opened(arguments[1]), *later = opened(arguments[2]);
        const char *reopened = opened(again);
        const char *read = name(pread(fd, &byte, 1, 0));
        byte = 'w';
        const char *written = name(pwrite(fd, &byte, 1, 1));
        printf("stat:%s list:%s open:%s later:%s again:%s read:%s write:%s map:%s\n", here, listed, open, later, reopened, read, written,
               loaded(map));
        fflush(stdout);
    }
    return 0;
}
