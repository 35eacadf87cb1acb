#include "probe.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>

// A process that repeats a refused access without a pause. It is a child by fork(2), because only
// fork(2) inherits a mapping. Each child makes one system call at a time and nothing else.

// Whether the kernel has this version or a later one.
static bool is_since(int major, int minor) {
    struct utsname name;
    int here[2] = {0, 0};
    return uname(&name) || sscanf(name.release, "%d.%d", &here[0], &here[1]) != 2 || here[0] > major || (here[0] == major && here[1] >= minor);
}

// Before Linux 6.9 madvise(2) with MADV_POPULATE_READ never returns for an unreadable page
// (631426ba1d45).
bool populating_ends(void) { return is_since(6, 9); }

// Runs the call in a child, which is killed after some seconds if the call does not return. The
// result is then KILLED.
int populate(void *address, size_t length) {
    pid_t child = fork();
    if (child < 0) return errno;
    if (child == 0) {
        alarm(populating_ends() ? 60 : 2);
        _exit(madvise(address, length, MADV_POPULATE_READ) ? errno : 0);
    }
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR) return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : KILLED;
}

static void go_on(int fd, void *map, bool maps) {
    char byte;
    // Since Linux 6.19 a refused read that fills pages fails with EIO: docs/conformance.md, “What
    // differs”.
    bool loses_errors = is_since(6, 19);
    for (;;) {
        int result = maps ? RESULT(madvise(map, PAGE, MADV_POPULATE_READ)) : RESULT(pread(fd, &byte, 1, 0));
        if (result == (maps ? EFAULT : EACCES) || (!maps && loses_errors && result == EIO)) continue;
        _exit(result == DONE ? 255 : result);
    }
}

// again FILE read|populate: opens and maps the file. After a line it reads its first page without a pause, until the next line. It prints
// how the attempts ended: “SIGKILL” for its own signal, or the first result that was not a refusal.
int run_again(const char *file, const char *how) {
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail(file);
    char line[64];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) go_on(fd, map, !strcmp(how, "populate"));
    puts("begun");
    fflush(stdout);
    // Kills the child at the end of input too, because it must not outlive this process.
    char *told = fgets(line, sizeof line, stdin);
    int status = 0;
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child) fail("wait");
    if (told) puts(WIFSIGNALED(status) ? "SIGKILL" : WEXITSTATUS(status) == 255 ? "OK" : result_name(WEXITSTATUS(status)));
    fflush(stdout);
    return 0;
}
