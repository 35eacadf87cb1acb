#include "probe.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int run_program(const char *path, const char *argument) {
    char *arguments[] = {"program", (char *)argument, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int result = posix_spawn(&child, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (result) return result;
    int status;
    if (waitpid(child, &status, 0) < 0) return errno;
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGBUS ? BUS : KILLED;
    return WEXITSTATUS(status) == 0 ? DONE : WRONG;
}

// A program that runs from the granted directory. It answers each byte with a byte for as long as
// its text can be read.
int text_child(void) {
    char byte;
    if (write(1, "r", 1) != 1) return 1;
    while (read(0, &byte, 1) == 1) {
        byte = (char)check_pattern((const unsigned char *)"a", 1, 0);
        if (write(1, "k", 1) != 1) return 1;
    }
    return 0;
}

void start_text_child(struct probe *p) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) fail("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    char *arguments[] = {"program", "text-child", NULL};
    if ((errno = posix_spawn(&p->child, in(p, "prog"), &actions, NULL, arguments, environ))) fail("running prog");
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    p->child_in = to[1];
    p->child_out = from[0];
    char byte;
    if (read(p->child_out, &byte, 1) != 1) fail("prog did not start");
}
