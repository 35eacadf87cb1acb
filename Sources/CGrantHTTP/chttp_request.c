#include "chttp_internal.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <strings.h>
#include <string.h>
#include <sys/socket.h>

const char *chttp_method(const struct chttp_request *request) { return request->method; }
const char *chttp_path(const struct chttp_request *request) { return request->path; }

const char *chttp_body(const struct chttp_request *request, size_t *length) {
    *length = request->length;
    return request->body;
}

struct search {
    const char *name, *found;
    bool is_exact;
    size_t left;
};

static enum MHD_Result look(void *context, enum MHD_ValueKind kind, const char *name, const char *value) {
    struct search *search = context;
    (void)kind;
    if (name == NULL || (search->is_exact ? strcmp : strcasecmp)(name, search->name) != 0)
        return MHD_YES;
    if (search->left-- > 0)
        return MHD_YES;
    search->found = value == NULL ? "" : value;
    return MHD_NO;
}

const char *chttp_value(struct chttp_request *request, enum chttp_kind kind, const char *name, size_t number) {
    struct search search = {.name = name, .left = number, .is_exact = kind != CHTTP_HEADER};
    enum MHD_ValueKind kinds[] = {MHD_HEADER_KIND, MHD_COOKIE_KIND, MHD_GET_ARGUMENT_KIND};
    MHD_get_connection_values(request->connection, kinds[kind], look, &search);
    return search.found;
}

void chttp_peer(struct chttp_request *request, char *text, size_t size) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    snprintf(text, size, "?");
    if (info == NULL || info->client_addr == NULL)
        return;
    socklen_t length = info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    getnameinfo(info->client_addr, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
}

int64_t chttp_user(const struct chttp_request *request) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (info == NULL || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || length != sizeof peer)
        return -1;
    // Other sockets have no user.
    return peer.pid == 0 || peer.uid == (uid_t)-1 ? -1 : (int64_t)peer.uid;
}

/// libmicrohttpd asks for a certificate, and leaves its inspection to the application.
bool chttp_identity(struct chttp_request *request, char *subject, size_t size) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL || info->tls_session == NULL || request->server->authorities == NULL)
        return false;
    gnutls_session_t session = info->tls_session;
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, .size = 0};
    unsigned status = ~0U, count = 0;
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) != 0 || status != 0)
        return false;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);
    gnutls_x509_crt_t certificate;
    if (chain == NULL || count == 0 || gnutls_x509_crt_init(&certificate) != 0)
        return false;
    size_t length = size;
    bool has_name = gnutls_x509_crt_import(certificate, &chain[0], GNUTLS_X509_FMT_DER) == 0 &&
                    gnutls_x509_crt_get_dn(certificate, subject, &length) == 0;
    gnutls_x509_crt_deinit(certificate);
    // Sessions and the log identify a person by it. Certificates without one, or with one that does
    // not fit, would all be the same person.
    return has_name && length > 0 && subject[0] != 0;
}

void chttp_admit(struct chttp_request *request) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info != NULL && info->socket_context != NULL)
        connections_admit(&request->server->connections, info->socket_context);
}

void chttp_reply(
    struct chttp_request *request, unsigned status, const struct chttp_header *headers, size_t count, const void *body, size_t length) {
    if (request->is_answered)
        return;
    struct MHD_Response *response = MHD_create_response_from_buffer(length, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return;
    bool is_whole = true;
    for (size_t i = 0; i < count; i++)
        is_whole = MHD_add_response_header(response, headers[i].name, headers[i].value) == MHD_YES && is_whole;
    // An answer that lacks a header is none: the header may be what keeps a page from being misused.
    request->is_answered = is_whole && MHD_queue_response(request->connection, status, response) == MHD_YES;
    MHD_destroy_response(response);
}
