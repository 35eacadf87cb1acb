#include "chttp_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static struct connection *connection_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

static enum MHD_Result on_accept(void *context, const struct sockaddr *address, socklen_t length) {
    struct chttp_server *server = context;
    (void)length;
    return connections_accept(&server->connections, address) ? MHD_YES : MHD_NO;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **place, enum MHD_ConnectionNotificationCode code) {
    struct chttp_server *server = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *peer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *place = info == NULL ? NULL : connections_add(&server->connections, info->connect_fd, peer == NULL ? NULL : peer->client_addr);
    } else if (*place != NULL) {
        connections_remove(&server->connections, *place);
        *place = NULL;
    }
}

static void on_completed(void *context, struct MHD_Connection *connection, void **place, enum MHD_RequestTerminationCode code) {
    struct chttp_server *server = context;
    struct chttp_request *request = *place;
    (void)code;
    struct connection *one = connection_of(connection);
    if (one != NULL)
        connections_begin_again(&server->connections, one);
    if (request != NULL) {
        free(request->body);
        free(request);
    }
    *place = NULL;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/// The first lines were read, and nothing of the body.
static enum MHD_Result begin(
    struct chttp_server *server, struct MHD_Connection *connection, const char *path, const char *method, void **place) {
    // A body without a stated length could have any length.
    if (MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding") != NULL)
        return refuse(connection, MHD_HTTP_LENGTH_REQUIRED);
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    if (length != NULL && (strlen(length) > 9 || strtoul(length, NULL, 10) > server->body_limit))
        return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE);
    struct chttp_request *request = calloc(1, sizeof *request);
    if (request == NULL || (request->body = malloc(server->body_limit + 1)) == NULL) {
        free(request);
        return MHD_NO;
    }
    request->server = server;
    request->connection = connection;
    request->method = method;
    request->path = path;
    *place = request;
    return MHD_YES;
}

static enum MHD_Result handle(
    void *context, struct MHD_Connection *connection, const char *path, const char *method, const char *version, const char *bytes,
    size_t *count, void **place) {
    struct chttp_server *server = context;
    struct chttp_request *request = *place;
    (void)version;
    if (request == NULL)
        return begin(server, connection, path, method, place);
    if (*count > 0) {
        if (*count > server->body_limit - request->length)
            return MHD_NO;
        memcpy(request->body + request->length, bytes, *count);
        request->length += *count;
        *count = 0;
        return MHD_YES;
    }
    // By the pointers of this call: those of the first one may have moved.
    request->method = method;
    request->path = path;
    server->answer(server->context, request);
    return request->is_answered ? MHD_YES : MHD_NO;
}

/// Only here libmicrohttpd reports why it does not start. Later errors of clients are not logged.
__attribute__((format(printf, 2, 0))) static void on_message(void *context, const char *format, va_list arguments) {
    struct chttp_server *server = context;
    if (server->is_started)
        return;
    vsnprintf(server->said, sizeof server->said, format, arguments);
    for (size_t end = strlen(server->said); end > 0 && (server->said[end - 1] == '\n' || server->said[end - 1] == '.'); end--)
        server->said[end - 1] = 0;
}

static char *copy(const char *text) { return text == NULL ? NULL : strdup(text); }

static void destroy(struct chttp_server *server) {
    free(server->certificate);
    if (server->key != NULL)
        explicit_bzero(server->key, strlen(server->key));
    free(server->key);
    free(server->authorities);
    free(server);
}

struct chttp_server *chttp_start(const struct chttp_settings *settings, char *reason, size_t size) {
    struct chttp_server *server = calloc(1, sizeof *server);
    if (server == NULL || !connections_start(&server->connections, settings->connections, settings->seconds, settings->is_loopback)) {
        snprintf(reason, size, "there is no memory");
        free(server);
        close(settings->socket);
        return NULL;
    }
    server->body_limit = settings->body_limit;
    server->answer = settings->answer;
    server->context = settings->context;
    server->certificate = copy(settings->certificate);
    server->key = copy(settings->key);
    server->authorities = copy(settings->authorities);
    bool has_tls = server->certificate != NULL && server->key != NULL;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, server->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, server->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {server->authorities == NULL ? MHD_OPTION_END : MHD_OPTION_HTTPS_MEM_TRUST, 0, server->authorities},
        {MHD_OPTION_END, 0, NULL},
    };
    if (!has_tls)
        tls[0].option = MHD_OPTION_END;
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0) |
                     (settings->may_wait ? MHD_USE_THREAD_PER_CONNECTION : 0);
    server->daemon = MHD_start_daemon(
        flags, 0, on_accept, server, handle, server, MHD_OPTION_EXTERNAL_LOGGER, on_message, server, MHD_OPTION_LISTEN_SOCKET,
        settings->socket, MHD_OPTION_CONNECTION_LIMIT, settings->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, settings->head_limit,
        MHD_OPTION_CONNECTION_TIMEOUT, settings->seconds, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (server->daemon == NULL) {
        snprintf(reason, size, "%s", server->said[0] != 0 ? server->said : "libmicrohttpd does not say why");
        connections_stop(&server->connections);
        destroy(server);
        close(settings->socket);
        return NULL;
    }
    server->is_started = true;
    return server;
}

void chttp_stop(struct chttp_server *server) {
    MHD_stop_daemon(server->daemon);
    connections_stop(&server->connections);
    destroy(server);
}
