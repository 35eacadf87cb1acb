// callers CALL PATH COUNT: starts COUNT threads that each make one call on PATH, in which %d is
// replaced by the thread's number.
// CALL is truncate (to one byte), empty (truncate to nothing), open (for writing), nonblock (the
// same with O_NONBLOCK), read, stat or directory (open it). It prints "ready" when all have begun.
// After a line it prints how many have ended so far. After the line "all" it waits for all, and
// prints how many ended with each result, as "OK 3 EACCES 2".
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int opened(int fd) { return fd < 0 ? errno : (close(fd), 0); }

static int call(const char *what, const char *path) {
    char byte;
    struct stat status;
    if (!strcmp(what, "truncate")) return truncate(path, 1) ? errno : 0;
    if (!strcmp(what, "empty")) return truncate(path, 0) ? errno : 0;
    if (!strcmp(what, "open")) return opened(open(path, O_WRONLY));
    if (!strcmp(what, "nonblock")) return opened(open(path, O_WRONLY | O_NONBLOCK));
    if (!strcmp(what, "directory")) return opened(open(path, O_RDONLY | O_DIRECTORY));
    if (!strcmp(what, "stat")) return stat(path, &status) ? errno : 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0) return errno;
    return read(fd, &byte, 1) < 0 ? errno : 0;
}

static char **words;
static int ends[2];

static void *make_one(void *number) {
    char path[4096];
    snprintf(path, sizeof path, words[1], (int)(long)number);
    unsigned char result = (unsigned char)call(words[0], path);
    if (write(ends[1], &result, 1) != 1) attack_failed("write");
    return NULL;
}

int attack_callers(int count, char **arguments) {
    if (count != 3) return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int many = atoi(arguments[2]), left = many;
    int ended[256] = {0};
    words = arguments;
    if (pipe(ends)) attack_failed("pipe");
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < many; i++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, &small, make_one, (void *)i))) attack_failed("pthread_create");
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    attack_ready();
    for (char line[64]; fgets(line, sizeof line, stdin);) {
        int all = !strcmp(line, "all\n");
        unsigned char result;
        while (left > 0) {
            if (read(ends[0], &result, 1) == 1) ended[result]++, left--;
            else if (!all) break;
            else usleep(2000);
        }
        if (!all) printf("%d", many - left);
        for (int error = 0; all && error < 256; error++)
            if (ended[error]) printf("%s%s %d", error && ended[0] ? " " : "", error ? strerrorname_np(error) : "OK", ended[error]);
        puts("");
        fflush(stdout);
    }
    return 0;
}
