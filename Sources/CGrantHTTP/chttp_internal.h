#pragma once
#include "chttp.h"
#include "chttp_library.h"

#include <pthread.h>

/// One connection, from when it was accepted to before its descriptor is closed.
struct connection {
    struct connection *next, *previous;
    int descriptor;
    /// CLOCK_MONOTONIC in milliseconds: since when its request is under way.
    int64_t since;
    bool is_admitted;
    /// It was told to end.
    bool is_shut;
};

/// Ends connections that take too long, and those that stand in the way.
struct connections {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct connection *first;
    unsigned count, limit;
    int64_t milliseconds;
    bool is_ending;
    pthread_t thread;
    bool has_thread;
};

bool connections_start(struct connections *all, unsigned limit, unsigned seconds);
void connections_stop(struct connections *all);
struct connection *connections_add(struct connections *all, int descriptor);
void connections_remove(struct connections *all, struct connection *one);
void connections_begin_again(struct connections *all, struct connection *one);
void connections_admit(struct connections *all, struct connection *one);

struct chttp_server {
    struct MHD_Daemon *daemon;
    struct connections connections;
    size_t body_limit;
    void (*answer)(void *context, struct chttp_request *request);
    void *context;
    char *certificate, *key, *authorities;
    bool is_started;
    char said[200];
};

struct chttp_request {
    struct chttp_server *server;
    struct MHD_Connection *connection;
    const char *method, *path;
    char *body;
    size_t length;
    bool is_answered;
};
