#include "clinux_thread.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

__thread unsigned clinux_own_locks __attribute__((tls_model("initial-exec")));

static bool (*give_up)(void);

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)context;
    int error = errno;
    // Only a trap of an instruction of this very thread. Other processes may send the signal too.
    if (info->si_code > 0 && clinux_own_locks == 0 && give_up())
        for (;;) sleep(1000);
    // As without this handler: the instruction traps again.
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(number, &plain, NULL);
    errno = error;
}

int clinux_trap_install(bool (*handler)(void)) {
    give_up = handler;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    return sigaction(SIGILL, &action, NULL) == -1 || sigaction(SIGTRAP, &action, NULL) == -1 ? -errno : 0;
}

void clinux_trap_allow(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGILL);
    sigaddset(&set, SIGTRAP);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
