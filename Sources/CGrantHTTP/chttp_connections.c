// libmicrohttpd ends a connection on which nothing comes. One on which a byte comes now and then it keeps for ever, and when all are taken it accepts nobody else; both ends here.
#include "chttp_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/// Under the lock, under which the connection is taken out before its descriptor is closed: it is no other file's.
static void shut(struct connection *one) {
    one->is_shut = true;
    shutdown(one->descriptor, SHUT_RDWR);
}

static void *watch(void *context) {
    struct connections *all = context;
    pthread_mutex_lock(&all->lock);
    while (!all->is_ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1;
        pthread_cond_timedwait(&all->changed, &all->lock, &until);
        int64_t time = now();
        for (struct connection *one = all->first; one != NULL; one = one->next)
            if (!one->is_shut && time - one->since > all->milliseconds)
                shut(one);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

bool connections_start(struct connections *all, unsigned limit, unsigned seconds) {
    memset(all, 0, sizeof *all);
    all->limit = limit;
    all->milliseconds = (int64_t)seconds * 1000;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    all->has_thread = pthread_create(&all->thread, NULL, watch, all) == 0;
    return all->has_thread;
}

void connections_stop(struct connections *all) {
    pthread_mutex_lock(&all->lock);
    all->is_ending = true;
    pthread_cond_signal(&all->changed);
    pthread_mutex_unlock(&all->lock);
    if (all->has_thread)
        pthread_join(all->thread, NULL);
    while (all->first != NULL)
        connections_remove(all, all->first);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
}

struct connection *connections_add(struct connections *all, int descriptor) {
    struct connection *added = calloc(1, sizeof *added);
    if (added == NULL)
        return NULL;
    added->descriptor = descriptor;
    added->since = now();
    pthread_mutex_lock(&all->lock);
    // The oldest stand at the end.
    if (all->count >= all->limit - all->limit / 4) {
        struct connection *oldest = NULL;
        for (struct connection *one = all->first; one != NULL; one = one->next)
            if (!one->is_admitted && !one->is_shut)
                oldest = one;
        if (oldest != NULL)
            shut(oldest);
    }
    added->next = all->first;
    if (all->first != NULL)
        all->first->previous = added;
    all->first = added;
    all->count++;
    pthread_mutex_unlock(&all->lock);
    return added;
}

void connections_remove(struct connections *all, struct connection *one) {
    pthread_mutex_lock(&all->lock);
    if (one->previous != NULL)
        one->previous->next = one->next;
    else
        all->first = one->next;
    if (one->next != NULL)
        one->next->previous = one->previous;
    all->count--;
    pthread_mutex_unlock(&all->lock);
    free(one);
}

void connections_begin_again(struct connections *all, struct connection *one) {
    pthread_mutex_lock(&all->lock);
    one->since = now();
    pthread_mutex_unlock(&all->lock);
}

void connections_admit(struct connections *all, struct connection *one) {
    pthread_mutex_lock(&all->lock);
    one->is_admitted = true;
    pthread_mutex_unlock(&all->lock);
}
