#include "cfleet.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct cfleet_connection {
    CURL *handle;
    char *authorities, *certificate, *key;
};

struct transfer {
    const struct cfleet_request *request;
    int64_t date;
    bool has_bytes;
};

static char *copy(const char *text) { return text == NULL ? NULL : strdup(text); }

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

struct cfleet_connection *cfleet_open(const char *authorities, const char *certificate, const char *key) {
    struct cfleet_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    pthread_once(&once, begin);
    connection->handle = curl_easy_init();
    connection->authorities = copy(authorities);
    connection->certificate = copy(certificate);
    connection->key = copy(key);
    if (connection->handle == NULL) {
        cfleet_close(connection);
        return NULL;
    }
    return connection;
}

void cfleet_close(struct cfleet_connection *connection) {
    if (connection->handle != NULL)
        curl_easy_cleanup(connection->handle);
    free(connection->authorities);
    free(connection->certificate);
    free(connection->key);
    free(connection);
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *context) {
    struct transfer *transfer = context;
    (void)size;
    transfer->has_bytes = true;
    return transfer->request->each(transfer->request->context, bytes, count) ? count : 0;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *context) {
    struct transfer *transfer = context;
    char text[128];
    (void)size;
    if (count > 5 && count < sizeof text && strncasecmp(bytes, "date:", 5) == 0) {
        memcpy(text, bytes + 5, count - 5);
        text[count - 5] = 0;
        transfer->date = curl_getdate(text, NULL);
    }
    return count;
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct transfer *transfer = context;
    (void)a, (void)b, (void)c, (void)d;
    return transfer->request->goes_on == NULL || transfer->request->goes_on(transfer->request->context) ? 0 : 1;
}

/// Whether OpenSSL says that the other side refuses our certificate: it comes as a failure to receive or to connect.
static bool is_refusal(const char *error) {
    return strstr(error, "alert") != NULL && (strstr(error, "certificate") != NULL || strstr(error, "unknown ca") != NULL);
}

static void set_blob(CURL *handle, CURLoption option, char *text) {
    if (text == NULL)
        return;
    struct curl_blob blob = {.data = text, .len = strlen(text), .flags = CURL_BLOB_NOCOPY};
    curl_easy_setopt(handle, option, &blob);
}

static enum cfleet_outcome outcome(CURLcode code) {
    switch (code) {
    case CURLE_OK:
        return CFLEET_ANSWERED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return CFLEET_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return CFLEET_TIMED_OUT;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
        return CFLEET_DISTRUSTED;
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
        return CFLEET_OWN_CERTIFICATE;
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_WRITE_ERROR:
        return CFLEET_STOPPED;
    default:
        return CFLEET_BROKEN;
    }
}

static bool has_sent(CURL *handle) {
    long size = 0;
    curl_easy_getinfo(handle, CURLINFO_REQUEST_SIZE, &size);
    return size > 0;
}

enum cfleet_outcome cfleet_post(
    struct cfleet_connection *connection, const struct cfleet_request *request, long *status, int64_t *date, char *reason, size_t size) {
    CURL *handle = connection->handle;
    struct transfer transfer = {.request = request, .date = -1};
    char error[CURL_ERROR_SIZE] = "";
    // Its connections are kept.
    curl_easy_reset(handle);
    curl_easy_setopt(handle, CURLOPT_URL, request->url);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPIDLE, 10L);
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(handle, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, request->connect_timeout);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, request->timeout);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request->body);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->length);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
    set_blob(handle, CURLOPT_CAINFO_BLOB, connection->authorities);
    set_blob(handle, CURLOPT_SSLCERT_BLOB, connection->certificate);
    set_blob(handle, CURLOPT_SSLKEY_BLOB, connection->key);

    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    char *authorization = NULL;
    // Without this libcurl waits a second for leave to send a longer body.
    struct curl_slist *more = curl_slist_append(headers, "Expect:");
    if (more != NULL)
        headers = more;
    if (request->token != NULL && asprintf(&authorization, "Authorization: %s", request->token) >= 0) {
        more = curl_slist_append(headers, authorization);
        if (more != NULL)
            headers = more;
        free(authorization);
    }
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(handle);
    snprintf(reason, size, "%s", error[0] != 0 ? error : curl_easy_strerror(code));
    bool was_sent = has_sent(handle);
    if (outcome(code) == CFLEET_BROKEN && strncmp(request->url, "https:", 6) == 0 && !transfer.has_bytes && !is_refusal(error)) {
        // By TLS 1.3 a server says only after the handshake that it does not accept our
        // certificate, and what it says may be lost with the connection. By 1.2 it does so during
        // the handshake.
        curl_easy_setopt(handle, CURLOPT_SSLVERSION, (long)(CURL_SSLVERSION_TLSv1_2 | CURL_SSLVERSION_MAX_TLSv1_2));
        curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
        error[0] = 0;
        code = curl_easy_perform(handle);
        snprintf(reason, size, "%s", error[0] != 0 ? error : curl_easy_strerror(code));
        was_sent = was_sent || has_sent(handle);
    }
    curl_slist_free_all(headers);
    *status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, status);
    *date = transfer.date;
    if (code != CURLE_OK && is_refusal(error))
        return CFLEET_OWN_CERTIFICATE;
    enum cfleet_outcome result = outcome(code);
    return !was_sent && (result == CFLEET_TIMED_OUT || result == CFLEET_BROKEN) ? CFLEET_UNREACHABLE : result;
}
