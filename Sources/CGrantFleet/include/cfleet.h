#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// What came of a request.
enum cfleet_outcome {
    CFLEET_ANSWERED,
    /// No connection: the name is unknown, no server listens, the network does not lead there, or
    /// it took too long. Nothing was sent.
    CFLEET_UNREACHABLE,
    /// The request was sent.
    CFLEET_TIMED_OUT,
    /// The server is not trusted: its certificate is of another authority, of another name, or has
    /// expired.
    CFLEET_DISTRUSTED,
    /// Our own certificate, key or list of authorities is not usable, or the server refuses our certificate.
    CFLEET_OWN_CERTIFICATE,
    /// `each` or `goes_on` ended the request.
    CFLEET_STOPPED,
    /// It hung up, or speaks something else. The request was sent.
    CFLEET_BROKEN,
};

/// A connection that is kept between requests. Only one thread at a time may use it.
struct cfleet_connection;

/// PEM texts, each may be NULL. NULL when there is no memory.
struct cfleet_connection *cfleet_open(const char *authorities, const char *certificate, const char *key);
void cfleet_close(struct cfleet_connection *connection);

/// One POST of JSON.
struct cfleet_request {
    const char *url;
    /// For the header Authorization. It may be NULL.
    const char *token;
    const char *body;
    size_t length;
    /// The limit in milliseconds. With 0 a request has no limit once it is connected.
    long timeout;
    long connect_timeout;
    /// Called with each piece of the answer. If it returns false, the request ends.
    bool (*each)(void *context, const char *bytes, size_t count);
    /// Asked about once a second whether to go on. If it returns false, the request ends. It may be
    /// NULL.
    bool (*goes_on)(void *context);
    void *context;
};

/// Waits for the answer. `status`: that of HTTP. `date`: the server's clock in seconds since 1970, -1 when it does not say.
enum cfleet_outcome cfleet_post(
    struct cfleet_connection *connection, const struct cfleet_request *request, long *status, int64_t *date, char *reason, size_t size);

enum cfleet_kind { CFLEET_NULL, CFLEET_BOOL, CFLEET_INTEGER, CFLEET_NUMBER, CFLEET_STRING, CFLEET_ARRAY, CFLEET_OBJECT };

/// Parses JSON text into a value, which the caller frees. Returns NULL if it is invalid, with a
/// text in `reason`.
void *cfleet_parse(const char *text, size_t length, char *reason, size_t size);
void cfleet_free(void *value);
enum cfleet_kind cfleet_kind(const void *value);
bool cfleet_is_true(const void *value);
int64_t cfleet_integer(const void *value);
double cfleet_number(const void *value);
const char *cfleet_string(const void *value, size_t *length);
/// Of an array.
size_t cfleet_count(const void *value);
void *cfleet_item(const void *value, size_t index);
/// Of an object: NULL at the end.
void *cfleet_first(void *value);
void *cfleet_next(void *value, void *place);
const char *cfleet_key(void *place);
void *cfleet_member(void *place);

/// Makes values to be written. The caller frees each of them, or gives it to one of the next two,
/// which take it.
void *cfleet_make(enum cfleet_kind kind, bool is_true, int64_t integer, double number, const char *string, size_t length);
bool cfleet_append(void *array, void *value);
bool cfleet_set(void *object, const char *key, void *value);
/// The text of a value, to be freed by free(3).
char *cfleet_text(const void *value);
