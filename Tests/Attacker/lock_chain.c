// lock-chain FILE COUNT: makes COUNT open file descriptions of FILE, each with a locked byte. Each
// but the last waits for the byte of the next one, so that a deadlock check must follow the whole
// chain.
// It prints how many wait, and how many were refused with which errno. A line on standard input
// prints the same again.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int *descriptors;
static atomic_int started, refused, last_error;

static struct flock byte(long place) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
}

static void *wait_for_next(void *argument) {
    long place = (long)argument;
    struct flock next = byte(place + 1);
    atomic_fetch_add(&started, 1);
    if (fcntl(descriptors[place], F_OFD_SETLKW, &next) == -1) {
        atomic_store(&last_error, errno);
        atomic_fetch_add(&refused, 1);
    }
    return NULL;
}

static void say(int waiting) {
    int gone = atomic_load(&refused);
    printf("waiting %d refused %d %s\n", waiting - gone, gone, gone ? strerrorname_np(atomic_load(&last_error)) : "-");
    fflush(stdout);
}

int attack_lock_chain(int count, char **arguments) {
    if (count < 2) return 2;
    int length = atoi(arguments[1]);
    attack_raise_limits();
    descriptors = calloc((size_t)length + 1, sizeof *descriptors);
    int held = 0;
    for (; held < length; held++) {
        int fd = open(arguments[0], O_RDWR | O_CLOEXEC);
        if (fd == -1) break;
        struct flock own = byte(held);
        if (fcntl(fd, F_OFD_SETLK, &own) == -1) {
            close(fd);
            break;
        }
        descriptors[held] = fd;
    }
    if (held == 0) attack_failed(arguments[0]);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384 + 16384);
    int threads = 0;
    // From the end of the chain, so that each new waiter extends it at its beginning.
    for (long place = held - 2; place >= 0; place--) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, wait_for_next, (void *)place) != 0) break;
        pthread_detach(thread);
        threads++;
    }
    while (atomic_load(&started) < threads) usleep(1000);
    printf("held %d\n", held);
    attack_ready();
    say(threads);
    while (attack_wait()) say(threads);
    // The kernel releases all locks at exit.
    _exit(0);
}
