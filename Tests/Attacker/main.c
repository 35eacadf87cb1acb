// Attacker NAME ARGUMENT...: see attacker.h. Each attack has a file of its own.
#include "attacker.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    attack *run;
} attacks[] = {
    // One line for each attack, in the order of their names.
    {"flight", attack_flight},
    {"outlive", attack_outlive},
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

int main(int count, char **arguments) {
    for (int i = 0; count > 1 && attacks[i].name; i++)
        if (!strcmp(arguments[1], attacks[i].name)) return attacks[i].run(count - 2, arguments + 2);
    fprintf(stderr, "Attacker: no such attack\n");
    return 2;
}
