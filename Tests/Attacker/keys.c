// A program that looks for the keys of the session that it was started from: keyrings(7).
#include "attacker.h"
#include <errno.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long keyctl(int operation, unsigned long second, unsigned long third, unsigned long fourth) {
    return syscall(SYS_keyctl, operation, second, third, fourth, 0);
}

static void say(const char *what, long result) {
    printf("%s: %s\n", what, result == -1 ? strerror(errno) : "done");
}

/// keys start DESCRIPTION SECRET COMMAND...: runs the command in a new session keyring with a key.
/// $ATTACKER_KEY is the key's number.
static int start(int count, char **arguments) {
    if (count < 3) return 2;
    if (keyctl(KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0) == -1) attack_failed("a session keyring");
    long key = syscall(SYS_add_key, "user", arguments[0], arguments[1], strlen(arguments[1]), KEY_SPEC_SESSION_KEYRING);
    if (key == -1) attack_failed("a key");
    char number[32];
    snprintf(number, sizeof number, "%ld", key);
    setenv("ATTACKER_KEY", number, 1);
    execvp(arguments[2], arguments + 2);
    attack_failed(arguments[2]);
}

/// keys look DESCRIPTION: prints for each way to a key whether it succeeds.
static int look(const char *description) {
    const char *number = getenv("ATTACKER_KEY");
    if (!number) return 2;
    char secret[64] = "";
    if (keyctl(KEYCTL_READ, strtoul(number, NULL, 10), (unsigned long)secret, sizeof secret - 1) == -1)
        say("read", -1);
    else
        printf("read: %s\n", secret);
    say("search", keyctl(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (unsigned long)"user", (unsigned long)description));
    say("request", syscall(SYS_request_key, "user", description, NULL, KEY_SPEC_PROCESS_KEYRING));
    say("user's", keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0, 0));
    say("add", syscall(SYS_add_key, "user", "attacker", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    char line[512];
    int is_listed = 0;
    FILE *list = fopen("/proc/keys", "r");
    while (list && fgets(line, sizeof line, list)) is_listed |= strstr(line, description) != NULL;
    if (list) fclose(list);
    printf("listed: %s\n", is_listed ? "yes" : "no");
    return 0;
}

int attack_keys(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[0], "start")) return start(count - 1, arguments + 1);
    if (count == 2 && !strcmp(arguments[0], "look")) return look(arguments[1]);
    return 2;
}
