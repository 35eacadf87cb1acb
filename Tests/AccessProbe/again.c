#include "probe.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>

// Whoever asks again at once for what is refused. In children by fork(), because nothing else hands a mapping on; each makes one system call at a time and nothing else.

// Whether the kernel is that version or later.
static bool is_since(int major, int minor) {
    struct utsname name;
    int here[2] = {0, 0};
    return uname(&name) || sscanf(name.release, "%d.%d", &here[0], &here[1]) != 2 || here[0] > major || (here[0] == major && here[1] >= minor);
}

// Before Linux 6.9 madvise with MADV_POPULATE_READ goes on for ever with what cannot be read (631426ba1d45).
bool populating_ends(void) { return is_since(6, 9); }

// In a process of its own, which is ended after some seconds where the call does not end by itself: KILLED.
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
    // From Linux 6.19 on a refused read that fills pages is EIO: docs/conformance.md, “What differs”.
    bool loses_errors = is_since(6, 19);
    for (;;) {
        int result = maps ? RESULT(madvise(map, PAGE, MADV_POPULATE_READ)) : RESULT(pread(fd, &byte, 1, 0));
        if (result == (maps ? EFAULT : EACCES) || (!maps && loses_errors && result == EIO)) continue;
        _exit(result == DONE ? 255 : result);
    }
}

// again FILE read|populate: opens and maps it; after a line asks for its first page without a pause, until the next line. Says how it ended: “SIGKILL” for the end that it was given,
// or what it got that was no refusal.
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
    // Whether or not there is a line: it must not outlive this process.
    char *told = fgets(line, sizeof line, stdin);
    int status = 0;
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child) fail("wait");
    if (told) puts(WIFSIGNALED(status) ? "SIGKILL" : WEXITSTATUS(status) == 255 ? "OK" : result_name(WEXITSTATUS(status)));
    fflush(stdout);
    return 0;
}
