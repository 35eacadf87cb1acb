// hold_files PATH THREADS HOW: starts THREADS threads, each with its own table of descriptors, like
// processes. Each opens PATH until that is refused. HOW is file, directory, or kept. kept makes
// files PATH/N, opens each with O_PATH and removes it.
// It prints "ready", the number of descriptors held, and the error that ended it. After a line it
// closes them and prints "gone".
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char **words;
static int total, error_at_end;
static sem_t done, go;

static int take(const char *path, const char *how, long thread, int number) {
    if (!strcmp(how, "file")) return open(path, O_RDONLY);
    if (!strcmp(how, "directory")) return open(path, O_RDONLY | O_DIRECTORY);
    char name[4096];
    snprintf(name, sizeof name, "%s/%ld-%d", path, thread, number);
    if (mknod(name, S_IFREG | 0600, 0)) return -1;
    int fd = open(name, O_PATH), error = errno;
    unlink(name);
    errno = error;
    return fd;
}

static void *hold(void *number) {
    if (unshare(CLONE_FILES)) attack_failed("unshare");
    int count = 0;
    while (take(words[0], words[2], (long)number, count) >= 0) count++;
    error_at_end = errno;
    total += count;
    sem_post(&done);
    // The table of descriptors ends with the thread.
    sem_wait(&go);
    return NULL;
}

int attack_hold_files(int count, char **arguments) {
    if (count != 3) return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    words = arguments;
    int many = atoi(arguments[1]);
    pthread_t threads[64];
    if (many > 64) return 2;
    sem_init(&done, 0, 0);
    sem_init(&go, 0, 0);
    // The threads run in sequence, so that each takes what the limits still allow.
    for (long i = 0; i < many; i++) {
        if ((errno = pthread_create(&threads[i], NULL, hold, (void *)i))) attack_failed("pthread_create");
        sem_wait(&done);
    }
    attack_ready();
    printf("%d %s\n", total, strerrorname_np(error_at_end));
    fflush(stdout);
    if (attack_wait()) {
        for (int i = 0; i < many; i++) sem_post(&go);
        for (int i = 0; i < many; i++) pthread_join(threads[i], NULL);
        puts("gone");
        fflush(stdout);
        attack_wait();
    }
    return 0;
}
