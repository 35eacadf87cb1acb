#pragma once
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>

// libmicrohttpd and libgnutls are loaded here and nowhere else: one command needs them.
#define HTTP_FUNCTIONS(F)                                                                                                               \
    F(MHD_start_daemon)                                                                                                                 \
    F(MHD_stop_daemon)                                                                                                                  \
    F(MHD_is_feature_supported)                                                                                                         \
    F(MHD_get_connection_values)                                                                                                        \
    F(MHD_lookup_connection_value)                                                                                                      \
    F(MHD_get_connection_info)                                                                                                          \
    F(MHD_create_response_from_buffer)                                                                                                  \
    F(MHD_add_response_header)                                                                                                          \
    F(MHD_queue_response)                                                                                                               \
    F(MHD_destroy_response)

#define TLS_FUNCTIONS(F)                                                                                                                \
    F(gnutls_certificate_verify_peers)                                                                                                  \
    F(gnutls_certificate_get_peers)                                                                                                     \
    F(gnutls_x509_crt_init)                                                                                                             \
    F(gnutls_x509_crt_import)                                                                                                           \
    F(gnutls_x509_crt_get_dn)                                                                                                           \
    F(gnutls_x509_crt_deinit)

struct chttp_library {
#define MEMBER(name) __typeof__(name) *name;
    HTTP_FUNCTIONS(MEMBER)
    TLS_FUNCTIONS(MEMBER)
#undef MEMBER
};

/// After `chttp_load` has returned true.
extern struct chttp_library chttp_library;
