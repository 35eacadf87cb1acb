// Attacker NAME ARGUMENT...: see attacker.h. Each attack has a file of its own.
#include "attacker.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct {
    const char *name;
    attack *run;
} attacks[] = {
    // One line for each attack, in the order of their names.
    {"copy", attack_copy},
    {"held-listing", attack_held_listing},
    {"late", attack_late},
    {"mapping", attack_mapping},
    {"pinned", attack_pinned},
    {"read-on", attack_read_on},
    {"numbers", attack_numbers},
    {"keys", attack_keys},
    {"shared", attack_shared},
    {"snapshot", attack_snapshot},
    {"sweep", attack_sweep},
    {"terminal", attack_terminal},
    {"callers", attack_callers},
    {"hold_files", attack_hold_files},
    {"leases", attack_leases},
    {"lock-bystander", attack_lock_bystander},
    {"lock-chain", attack_lock_chain},
    {"lock-many", attack_lock_many},
    {"lock-pieces", attack_lock_pieces},
    {"stay", attack_stay},
    {"flight", attack_flight},
    {"outlive", attack_outlive},
    {"in-exec", attack_in_exec},
    {"trace-init", attack_trace_init},
    {"threads", attack_threads},
    {NULL, NULL},
};

_Noreturn void attack_failed(const char *what) {
    fprintf(stderr, "Attacker: %s: %s\n", what, strerror(errno));
    exit(1);
}

void attack_ready(void) {
    puts("ready");
    fflush(stdout);
}

int attack_wait(void) {
    char line[256];
    return fgets(line, sizeof line, stdin) != NULL;
}

void attack_raise_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int count, char **arguments) {
    for (int i = 0; count > 1 && attacks[i].name; i++)
        if (!strcmp(arguments[1], attacks[i].name)) return attacks[i].run(count - 2, arguments + 2);
    fprintf(stderr, "Attacker: no such attack\n");
    return 2;
}
