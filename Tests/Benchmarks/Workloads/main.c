// Workloads NAME [prepare]: runs one loop in the working directory and prints the nanoseconds it took.
#include "workloads.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Noreturn void fail(const char *what) {
    fprintf(stderr, "workloads: %s: %s\n", what, strerror(errno));
    exit(1);
}

long check(long result, const char *what) {
    if (result < 0) fail(what);
    return result;
}

uint32_t pick(void) {
    static uint64_t state = 0x9E3779B97F4A7C15;
    state = state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(state >> 33);
}

void make_file(const char *name, long size) {
    struct stat status;
    if (stat(name, &status) == 0 && status.st_size == size) return;
    int file = (int)check(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644), name);
    static char block[1 << 20];
    for (size_t place = 0; place < sizeof block; place++) block[place] = (char)pick();
    for (long done = 0; done < size;) {
        long part = size - done < (long)sizeof block ? size - done : (long)sizeof block;
        done += check(write(file, block, (size_t)part), name);
    }
    check(close(file), name);
}

static const struct workload *find(const char *name) {
    const struct workload *lists[] = {reading, writing, names};
    for (int list = 0; list < 3; list++)
        for (const struct workload *one = lists[list]; one->name; one++)
            if (strcmp(one->name, name) == 0) return one;
    return NULL;
}

int main(int count, char **words) {
    const struct workload *wanted = count > 1 ? find(words[1]) : NULL;
    if (!wanted || count > 3 || (count == 3 && strcmp(words[2], "prepare") != 0)) {
        fprintf(stderr, "usage: Workloads NAME [prepare]\n");
        return 2;
    }
    if (count == 3) {
        wanted->prepare();
        return 0;
    }
    fill_buffer();
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    wanted->run();
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("%lld\n", (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec);
    return 0;
}
