// threads COUNT: has COUNT threads, each with its own stack, of which the first ends. It holds
// nothing of a mount.
#include "attacker.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *sleep_on(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}

int attack_threads(int count, char **arguments) {
    if (count != 1) return 2;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int left = atoi(arguments[0]); left > 0; left--) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, &small, sleep_on, NULL))) attack_failed("pthread_create");
    }
    attack_ready();
    pthread_exit(NULL);
}
