#include "workloads.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 3000, CREATED = 2000 };

static const char *name(const char *directory, int number) {
    static char text[64];
    snprintf(text, sizeof text, "%s/%d", directory, number);
    return text;
}

static void make_directory(const char *directory) {
    if (mkdir(directory, 0755) != 0 && errno != EEXIST) fail(directory);
}

static void prepare_small(void) {
    make_directory("small");
    for (int i = 0; i < FILES; i++) make_file(name("small", i), 2000);
}

static void open_read_close(void) {
    static char buffer[4096];
    for (int i = 0; i < FILES; i++) {
        int file = (int)check(open(name("small", i), O_RDONLY), "open");
        check(read(file, buffer, sizeof buffer), "read");
        close(file);
    }
}

static void look(void) {
    struct stat status;
    for (int i = 0; i < FILES; i++) check(stat(name("small", i), &status), "stat");
}

static void prepare_empty(void) { make_directory("made"); }

static void create_write_unlink(void) {
    static char buffer[1000];
    for (int i = 0; i < CREATED; i++) {
        int file = (int)check(open(name("made", i), O_WRONLY | O_CREAT | O_EXCL, 0644), "create");
        check(write(file, buffer, sizeof buffer), "write");
        check(close(file), "close");
    }
    for (int i = 0; i < CREATED; i++) check(unlink(name("made", i)), "unlink");
}

const struct workload names[] = {
    {"open-read-close", prepare_small, open_read_close},
    {"stat", prepare_small, look},
    {"create-write-unlink", prepare_empty, create_write_unlink},
    {NULL, NULL, NULL},
};
