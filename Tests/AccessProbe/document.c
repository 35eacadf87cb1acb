#include "probe.h"
#include <libgen.h>
#include <sys/mman.h>

// A program with documents open, as an editor has them.

enum { MOST = 8 };

static struct {
    const char *path;
    int fd;
    unsigned char *map;
} held[MOST];

static int opening(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    close(fd);
    return DONE;
}

static int listing(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return errno;
    errno = 0;
    int result = readdir(directory) ? DONE : errno ? errno : WRONG;
    closedir(directory);
    return result;
}

static void report(int index) {
    char byte;
    printf("%sread=%s map=%s open=%s", index ? " | " : "", result_name(RESULT(pread(held[index].fd, &byte, 1, 0))),
           result_name(touch(held[index].map, 0)), result_name(opening(held[index].path)));
    if (index == 0) printf(" cwd=%s", result_name(listing(".")));
}

// document FILE...: opens and maps each file, and changes to the first one's directory. For each
// line it prints the present results of all these accesses. Each file begins with an “a”.
int run_document(int count, char **paths) {
    if (count > MOST) count = MOST;
    catch_bus();
    for (int index = 0; index < count; index++) {
        int fd = open(paths[index], O_RDONLY | O_CLOEXEC);
        if (fd < 0) fail(paths[index]);
        held[index].path = paths[index];
        held[index].fd = fd;
        held[index].map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        if (held[index].map == MAP_FAILED || touch(held[index].map, 0) != DONE) fail(paths[index]);
    }
    char *first = strdup(paths[0]);
    if (!first || chdir(dirname(first))) fail(paths[0]);
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        for (int index = 0; index < count; index++) report(index);
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
