#pragma once
#include <curl/curl.h>
#include <jansson.h>

// libcurl and libjansson are loaded here and nowhere else: a machine without them has every command that needs no network.
#define CURL_FUNCTIONS(F)                                                                                                               \
    F(curl_global_init)                                                                                                                 \
    F(curl_easy_init)                                                                                                                   \
    F(curl_easy_setopt)                                                                                                                 \
    F(curl_easy_perform)                                                                                                                \
    F(curl_easy_getinfo)                                                                                                                \
    F(curl_easy_strerror)                                                                                                               \
    F(curl_easy_reset)                                                                                                                  \
    F(curl_easy_cleanup)                                                                                                                \
    F(curl_slist_append)                                                                                                                \
    F(curl_slist_free_all)                                                                                                              \
    F(curl_getdate)

#define JANSSON_FUNCTIONS(F)                                                                                                            \
    F(json_loadb)                                                                                                                       \
    F(json_dumps)                                                                                                                       \
    F(json_delete)                                                                                                                      \
    F(json_integer_value)                                                                                                               \
    F(json_real_value)                                                                                                                  \
    F(json_string_value)                                                                                                                \
    F(json_string_length)                                                                                                               \
    F(json_array_size)                                                                                                                  \
    F(json_array_get)                                                                                                                   \
    F(json_object_iter)                                                                                                                 \
    F(json_object_iter_next)                                                                                                            \
    F(json_object_iter_key)                                                                                                             \
    F(json_object_iter_value)                                                                                                           \
    F(json_null)                                                                                                                        \
    F(json_true)                                                                                                                        \
    F(json_false)                                                                                                                       \
    F(json_integer)                                                                                                                     \
    F(json_real)                                                                                                                        \
    F(json_stringn)                                                                                                                     \
    F(json_array)                                                                                                                       \
    F(json_object)                                                                                                                      \
    F(json_array_append_new)                                                                                                            \
    F(json_object_set_new)

struct library {
#define MEMBER(name) __typeof__(name) *name;
    CURL_FUNCTIONS(MEMBER)
    JANSSON_FUNCTIONS(MEMBER)
#undef MEMBER
};

/// After `cfleet_load` has returned true.
extern struct library cfleet_library;
