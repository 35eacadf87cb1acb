#include "parity.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

// uid, gid, supplementary groups, umask
static const char *const users[USERS][4] = {
    {"0", "0", "0", "022"},
    {"1001", "1001", "1001,2001,2002", "002"},
    {"1002", "1002", "1002,2002", "027"},
};

struct peer {
    FILE *to, *from;
} peers[USERS];

// Starts a separate process for each user. It really changes the user, so that the kernel treats it
// like any program.
static void start(int user, char **arguments) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) exit(3);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    char *words[] = {"ParityProbe", "worker", arguments[0], arguments[1], (char *)users[user][0], (char *)users[user][1],
                     (char *)users[user][2], (char *)users[user][3], arguments[3], NULL};
    pid_t child;
    if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ) != 0) exit(3);
    close(to[0]);
    close(from[1]);
    peers[user].to = fdopen(to[1], "w");
    peers[user].from = fdopen(from[0], "r");
}

// Passes one line of the script to the process of its user, and prints the reply. Returns false if
// that process has ended.
static bool pass_on(char *line, FILE *out) {
    static char *answer;
    static size_t size;
    int user = line[0] - '0';
    if (user < 0 || user >= USERS || line[1] != ' ') return true;
    fprintf(peers[user].to, "%s\n", line + 2);
    fflush(peers[user].to);
    ssize_t count = getline(&answer, &size, peers[user].from);
    if (count < 0) {
        fprintf(out, "the process of user %d ended\n", user);
        return false;
    }
    fwrite(answer, 1, (size_t)count, out);
    return true;
}

static void pass_on_all(FILE *script, FILE *out) {
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, script) >= 0) {
        line[strcspn(line, "\n")] = 0;
        if (!pass_on(line, out)) break;
        if (out == stdout) fflush(out);
    }
    free(line);
}

int main(int count, char **arguments) {
    if (count >= 9 && strcmp(arguments[1], "worker") == 0) return main_worker(arguments + 2);
    if (count < 6 || strcmp(arguments[1], "run") != 0) {
        fprintf(stderr, "usage: ParityProbe run DIRECTORY HOST SCRIPT TRANSCRIPT [--contract]\n");
        return 2;
    }
    FILE *script = fopen(arguments[4], "re");
    FILE *transcript = fopen(arguments[5], "we");
    if (script == NULL || transcript == NULL) return 2;
    bool contract = count > 6 && strcmp(arguments[6], "--contract") == 0;
    char *words[] = {arguments[2], arguments[3], NULL, contract ? "contract" : "real"};
    for (int user = 0; user < USERS; user++) start(user, words);
    pass_on_all(script, transcript);
    fclose(transcript);
    printf("end\n");
    fflush(stdout);
    pass_on_all(stdin, stdout);
    return 0;
}
