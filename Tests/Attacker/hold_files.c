// hold_files PATH PROCESSES HOW: so many processes open PATH again and again until it is refused: HOW is file, directory, or kept, which makes files PATH/N,
// opens each with O_PATH and removes it. "ready", how many are held, and why it ended. A line: they let go, and it says "gone".
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct held {
    int count, error;
};

static int take(const char *path, const char *how, int number) {
    if (!strcmp(how, "file")) return open(path, O_RDONLY);
    if (!strcmp(how, "directory")) return open(path, O_RDONLY | O_DIRECTORY);
    char name[4096];
    snprintf(name, sizeof name, "%s/%d-%d", path, getpid(), number);
    int made = mknod(name, S_IFREG | 0600, 0);
    if (made) return -1;
    int fd = open(name, O_PATH), error = errno;
    unlink(name);
    errno = error;
    return fd;
}

int attack_hold_files(int count, char **arguments) {
    if (count != 3) return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int many = atoi(arguments[1]), results[2], go[2];
    if (pipe(results) || pipe(go)) attack_failed("pipe");
    struct held sum = {0, 0}, one;
    // One after the other, so that each ends by what is left for it.
    for (int i = 0; i < many; i++) {
        pid_t child = fork();
        if (child < 0) attack_failed("fork");
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(go[1]);
            one = (struct held){0, 0};
            while (take(arguments[0], arguments[2], one.count) >= 0) one.count++;
            one.error = errno;
            char byte;
            if (write(results[1], &one, sizeof one) != sizeof one) _exit(1);
            _exit(read(go[0], &byte, 1) < 0);
        }
        if (read(results[0], &one, sizeof one) != sizeof one) attack_failed("read");
        sum.count += one.count;
        sum.error = one.error;
    }
    attack_ready();
    printf("%d %s\n", sum.count, strerrorname_np(sum.error));
    fflush(stdout);
    if (attack_wait()) {
        close(go[1]);
        while (wait(NULL) > 0) {}
        puts("gone");
        fflush(stdout);
        attack_wait();
    }
    return 0;
}
