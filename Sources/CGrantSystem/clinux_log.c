#include "clinux_log.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

static pthread_once_t loading = PTHREAD_ONCE_INIT;
// As systemd/sd-journal.h and systemd/sd-daemon.h declare them.
static int (*journal_sendv)(const struct iovec *, int);
static int (*notify)(int, const char *);

static void load(void) {
    void *library = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    journal_sendv = (int (*)(const struct iovec *, int))dlsym(library, "sd_journal_sendv");
    notify = (int (*)(int, const char *))dlsym(library, "sd_notify");
}

bool clinux_journal_is_there(void) {
    // Without a journald, sd_journal_sendv reports success.
    if (access("/run/systemd/journal/socket", W_OK) != 0) return false;
    pthread_once(&loading, load);
    return journal_sendv != NULL;
}

int clinux_journal_send(const char *const fields[], const size_t lengths[], int count) {
    struct iovec parts[32];
    if (journal_sendv == NULL) return -ENOSYS;
    if (count > 32) return -E2BIG;
    for (int i = 0; i < count; i++) parts[i] = (struct iovec){.iov_base = (void *)fields[i], .iov_len = lengths[i]};
    return journal_sendv(parts, count);
}

static void open_syslog(void) { openlog("grantfs", LOG_PID, LOG_DAEMON); }

void clinux_syslog(int priority, const char *message) {
    static pthread_once_t opening = PTHREAD_ONCE_INIT;
    pthread_once(&opening, open_syslog);
    syslog(priority, "%s", message);
}

int clinux_notify(const char *state, bool last) {
    if (getenv("NOTIFY_SOCKET") == NULL) return 0;
    pthread_once(&loading, load);
    return notify == NULL ? -ENOSYS : notify(last, state);
}
