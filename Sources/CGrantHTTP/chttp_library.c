#include "chttp_library.h"

#include "chttp.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct chttp_library chttp_library;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

static void load(void) {
    void *http = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
    void *tls = dlopen("libgnutls.so.30", RTLD_NOW | RTLD_LOCAL);
    if (http == NULL || tls == NULL) {
        snprintf(failure, sizeof failure, "%s is not there", http == NULL ? "libmicrohttpd.so.12" : "libgnutls.so.30");
        return;
    }
#define LOAD(handle, name)                                                                                                              \
    chttp_library.name = (__typeof__(chttp_library.name))dlsym(handle, #name);                                                          \
    if (chttp_library.name == NULL) {                                                                                                   \
        snprintf(failure, sizeof failure, "its library has no function %s", #name);                                                    \
        return;                                                                                                                         \
    }
#define LOAD_HTTP(name) LOAD(http, name)
#define LOAD_TLS(name) LOAD(tls, name)
    HTTP_FUNCTIONS(LOAD_HTTP)
    TLS_FUNCTIONS(LOAD_TLS)
    if (chttp_library.MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        snprintf(failure, sizeof failure, "libmicrohttpd was built without TLS");
}

bool chttp_load(char *reason, size_t size) {
    pthread_once(&once, load);
    if (failure[0] != 0)
        snprintf(reason, size, "%s", failure);
    return failure[0] == 0;
}
