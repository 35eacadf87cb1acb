// The checks of types that the header puts around its functions are macros, and hide the functions themselves.
#define CURL_DISABLE_TYPECHECK
#include "cfleet_library.h"

#include "cfleet.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

struct library cfleet_library;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

static void load(void) {
    void *curl = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    void *jansson = dlopen("libjansson.so.4", RTLD_NOW | RTLD_LOCAL);
    if (curl == NULL || jansson == NULL) {
        snprintf(failure, sizeof failure, "%s is not there", curl == NULL ? "libcurl.so.4" : "libjansson.so.4");
        return;
    }
#define LOAD(handle, name)                                                                                                              \
    cfleet_library.name = (__typeof__(cfleet_library.name))dlsym(handle, #name);                                                        \
    if (cfleet_library.name == NULL) {                                                                                                  \
        snprintf(failure, sizeof failure, "its library has no function %s", #name);                                                    \
        return;                                                                                                                         \
    }
#define LOAD_CURL(name) LOAD(curl, name)
#define LOAD_JANSSON(name) LOAD(jansson, name)
    CURL_FUNCTIONS(LOAD_CURL)
    JANSSON_FUNCTIONS(LOAD_JANSSON)
    if (cfleet_library.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(failure, sizeof failure, "libcurl cannot be used");
}

bool cfleet_load(char *reason, size_t size) {
    pthread_once(&once, load);
    if (failure[0] != 0)
        snprintf(reason, size, "%s", failure);
    return failure[0] == 0;
}
