// A program that stops the first process of its PID namespace by tracing it, and exits: ptrace(2).
#include "attacker.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

static int trace(const char *what, long request, long pid) {
    // The system call itself, with all bits of its arguments.
    long result = syscall(SYS_ptrace, request, pid, 0L, 0L);
    printf("%s: %s\n", what, result == -1 ? strerror(errno) : "done");
    fflush(stdout);
    return result == 0;
}

/// trace-init: prints for each way whether it succeeds. The first process that it traces is
/// stopped, and stays stopped.
int attack_trace_init(int count, char **arguments) {
    (void)count, (void)arguments;
    int holds = trace("attach", PTRACE_ATTACH, 1) + trace("wide", PTRACE_ATTACH, (long)(1UL << 32 | 1)) + trace("seize", PTRACE_SEIZE, 1);
    // The stop takes effect after a moment.
    if (holds) usleep(200000);
    return 7;
}
