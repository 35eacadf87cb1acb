#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/// Where a server listens.
struct chttp_place {
    int socket;
    uint16_t port;
    /// No host outside this machine reaches it.
    bool is_loopback;
    /// It is all of the machine's addresses.
    bool is_any;
};

/// A socket that listens at a numeric address. False, with a text in `reason`.
bool chttp_listen(const char *address, uint16_t port, struct chttp_place *place, char *reason, size_t size);

struct chttp_server;
/// One whole request, its body included. It is valid only within `answer`.
struct chttp_request;

struct chttp_settings {
    /// Belongs to the server from now on, also where it does not start.
    int socket;
    /// Of its place.
    bool is_loopback;
    /// PEM texts. Without the first two there is no TLS. Without the third the server asks for no
    /// certificate of a client.
    const char *certificate;
    const char *key;
    const char *authorities;
    /// The largest number of connections. When all but a fourth are taken, connections that are not
    /// vouched for (`chttp_admit`) give way, the oldest of the client with most of them first. One
    /// client has at most a fourth that is not vouched for, and 16 new connections a second. The
    /// machine's own users, who are one client, have all but a fourth, and 256 new connections a
    /// second. New connections have no limit if no other host can connect.
    unsigned connections;
    /// Bytes of a request's first lines, and of its body.
    size_t head_limit;
    size_t body_limit;
    /// How long one request may take, from the first byte of the connection, or the end of the request before, to the last byte of the answer.
    unsigned seconds;
    /// Each connection has a thread, so that `answer` may wait. Otherwise there is one thread.
    bool may_wait;
    /// It must give one answer, by `chttp_reply`.
    void (*answer)(void *context, struct chttp_request *request);
    void *context;
};

/// NULL, with a text in `reason`, when it does not start. The texts are copied.
struct chttp_server *chttp_start(const struct chttp_settings *settings, char *reason, size_t size);
/// Ends every connection, and waits for `answer` to return.
void chttp_stop(struct chttp_server *server);

const char *chttp_method(const struct chttp_request *request);
/// Returns the path without the query after a question mark, and with %XX resolved.
const char *chttp_path(const struct chttp_request *request);
const char *chttp_body(const struct chttp_request *request, size_t *length);

enum chttp_kind { CHTTP_HEADER, CHTTP_COOKIE, CHTTP_ARGUMENT };
/// Returns the value with this number, of all that have this name, or NULL if there are fewer.
const char *chttp_value(struct chttp_request *request, enum chttp_kind kind, const char *name, size_t number);
/// Whether connections from these addresses count as one client's: the same address, or network of IPv6, or both of this machine.
bool chttp_is_same_client(const struct sockaddr *one, const struct sockaddr *other);
/// The user on the other side of a Unix socket, or -1.
int64_t chttp_user(const struct chttp_request *request);
/// The address of the other side, as text.
void chttp_peer(struct chttp_request *request, char *text, size_t size);
/// Whether the other side has a certificate that one of `authorities` has signed for clients, and its subject.
bool chttp_identity(struct chttp_request *request, char *subject, size_t size);
/// The connection of the request does not give way to others.
void chttp_admit(struct chttp_request *request);

struct chttp_header {
    const char *name;
    const char *value;
};
void chttp_reply(
    struct chttp_request *request, unsigned status, const struct chttp_header *headers, size_t count, const void *body, size_t length);
