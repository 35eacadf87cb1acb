#pragma once
#include "chttp.h"
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>

#include <pthread.h>
#include <sys/socket.h>

enum client_kind { CLIENT_UNKNOWN, CLIENT_LOOPBACK, CLIENT_FOUR, CLIENT_SIX };
/// An address, of IPv6 its network. All of the machine's own addresses are one.
struct client {
    enum client_kind kind;
    unsigned char bytes[8];
};

struct client client_of(const struct sockaddr *address);
bool client_is_same(const struct client *one, const struct client *other);

/// How fast a client has connected: the connections that it may still make at once.
struct arrivals {
    struct client client;
    /// CLOCK_MONOTONIC in milliseconds, or 0 if it is not in use.
    int64_t last;
    /// In thousandths of a connection.
    int64_t left;
};
#define ARRIVALS 64

/// One connection, from when it was accepted to before its descriptor is closed.
struct connection {
    struct connection *next, *previous;
    int descriptor;
    struct client client;
    /// CLOCK_MONOTONIC in milliseconds: since when its request is under way.
    int64_t since;
    bool is_admitted;
    /// It was told to end.
    bool is_shut;
};

/// Ends connections that take too long, and those that block others.
struct connections {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct connection *first;
    unsigned count, limit;
    struct arrivals arrivals[ARRIVALS];
    /// No host outside this machine can connect.
    bool is_local;
    int64_t milliseconds;
    bool is_ending;
    pthread_t thread;
    bool has_thread;
};

bool connections_start(struct connections *all, unsigned limit, unsigned seconds, bool is_local);
void connections_stop(struct connections *all);
/// Whether the client may connect again.
bool connections_accept(struct connections *all, const struct sockaddr *address);
struct connection *connections_add(struct connections *all, int descriptor, const struct sockaddr *address);
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
