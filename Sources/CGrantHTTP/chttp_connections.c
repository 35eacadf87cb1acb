// libmicrohttpd ends a connection on which nothing comes. A connection on which a byte comes now
// and then it keeps for ever, and when all are taken it accepts no other client. Both end here. A
// client is an address, of IPv6 a network. One client takes neither all connections nor all of the
// thread's time, so that it does not keep out others. Its connections beyond its part are refused
// before anything is read or encrypted for them. On loopback an address does not identify a user.
// All of the machine's users are one client there, which may have three fourths of the connections.
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

/// The caller holds the lock. A connection is removed under it before its descriptor is closed, so
/// the descriptor cannot be another file's.
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

bool connections_start(struct connections *all, unsigned limit, unsigned seconds, bool is_local) {
    memset(all, 0, sizeof *all);
    all->is_local = is_local;
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

/// The number of connections of a client that are not vouched for, before its oldest gives way to
/// its newest.
static unsigned share(const struct connections *all, const struct client *client) {
    return all->is_local || client->kind == CLIENT_LOOPBACK ? all->limit - all->limit / 4 : all->limit / 4;
}

/// The number of connections of a client in a second (`RATE`), and at once after a while without
/// any (`BURST`). The machine's own users have `LOCAL` times as many.
enum { RATE = 16, BURST = 48, LOCAL = 16 };

static bool is_slow_enough(struct connections *all, const struct client *client, int64_t time) {
    int64_t times = client->kind == CLIENT_LOOPBACK ? LOCAL : 1, burst = BURST * 1000 * times;
    struct arrivals *found = NULL, *oldest = &all->arrivals[0];
    for (unsigned i = 0; i < ARRIVALS && found == NULL; i++) {
        struct arrivals *one = &all->arrivals[i];
        if (one->last != 0 && client_is_same(&one->client, client))
            found = one;
        if (one->last < oldest->last)
            oldest = one;
    }
    if (found == NULL) {
        found = oldest;
        *found = (struct arrivals){.client = *client, .last = time, .left = burst};
    }
    found->left += (time - found->last) * RATE * times;
    if (found->left > burst)
        found->left = burst;
    found->last = time;
    if (found->left < 1000)
        return false;
    found->left -= 1000;
    return true;
}

/// Those of a client that could give way, and the oldest of them.
static unsigned waiting(const struct connections *all, const struct client *client, struct connection **oldest) {
    unsigned count = 0;
    // The oldest connections are at the end.
    for (struct connection *one = all->first; one != NULL; one = one->next) {
        if (one->is_admitted || one->is_shut || !client_is_same(&one->client, client))
            continue;
        count++;
        *oldest = one;
    }
    return count;
}

bool connections_accept(struct connections *all, const struct sockaddr *address) {
    struct client client = client_of(address);
    pthread_mutex_lock(&all->lock);
    bool is_accepted = all->is_local || is_slow_enough(all, &client, now());
    pthread_mutex_unlock(&all->lock);
    return is_accepted;
}

/// Returns the connection that gives way when nearly all are taken: the oldest of the client with
/// most of them.
static struct connection *dispensable(const struct connections *all) {
    struct connection *found = NULL;
    unsigned largest = 0;
    for (struct connection *one = all->first; one != NULL; one = one->next) {
        struct connection *oldest = NULL;
        unsigned count = waiting(all, &one->client, &oldest);
        // Of several clients with as many, the client of the oldest connection gives way.
        if (count > 0 && count >= largest) {
            largest = count;
            found = oldest;
        }
    }
    return found;
}

struct connection *connections_add(struct connections *all, int descriptor, const struct sockaddr *address) {
    struct connection *added = calloc(1, sizeof *added);
    if (added == NULL)
        return NULL;
    added->descriptor = descriptor;
    added->client = client_of(address);
    added->since = now();
    pthread_mutex_lock(&all->lock);
    struct connection *oldest = NULL;
    if (waiting(all, &added->client, &oldest) >= share(all, &added->client))
        shut(oldest);
    else if (all->count >= all->limit - all->limit / 4 && (oldest = dispensable(all)) != NULL)
        shut(oldest);
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
