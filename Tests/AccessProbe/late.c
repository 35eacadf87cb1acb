#include "probe.h"
#include <pthread.h>

// Operations on a source that is about to hang. All files are opened first, and the operations
// begin after a line.

enum { MAX_LATE = 512, STEP = 1 << 20 };

struct late {
    const char *operation;
    const char *path;
    int fd;
    int number;
    int result;
};

static void *act(void *argument) {
    struct late *late = argument;
    char bytes[PAGE] = "late";
    struct stat st;
    off_t at = (off_t)late->number * STEP;
    const char *operation = late->operation;
    int value = 0;
    if (!strcmp(operation, "read")) value = (int)pread(late->fd, bytes, sizeof bytes, at);
    else if (!strcmp(operation, "write")) value = (int)pwrite(late->fd, bytes, 5, at);
    else if (!strcmp(operation, "fstat")) value = fstat(late->fd, &st);
    else if (!strcmp(operation, "stat")) value = stat(late->path, &st);
    else if (!strcmp(operation, "open")) value = open(late->path, O_RDONLY | O_CLOEXEC);
    else if (!strcmp(operation, "create")) value = open(late->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    else if (!strcmp(operation, "mkdir")) value = mkdir(late->path, 0700);
    else if (!strcmp(operation, "readdir")) value = (int)getdents64(late->fd, bytes, sizeof bytes);
    else if (!strcmp(operation, "fsync")) value = fsync(late->fd);
    else if (!strcmp(operation, "close")) value = close(late->fd);
    else fail(operation);
    late->result = RESULT(value);
    return NULL;
}

static int opened_before(const char *operation, const char *path) {
    static const char *const fresh[] = {"stat", "open", "create", "mkdir"};
    for (size_t i = 0; i < sizeof fresh / sizeof *fresh; i++)
        if (!strcmp(operation, fresh[i])) return -1;
    int fd = open(path, (!strcmp(operation, "readdir") ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_CLOEXEC);
    if (fd < 0) fail(path);
    return fd;
}

// late OPERATION PATH [THREADS]: prepares, prints "ready", and waits for a line. Each thread then
// does the operation at another MiB of the file, and its result is printed.
int run_late(const char *operation, const char *path, int threads) {
    static struct late all[MAX_LATE];
    static pthread_t ids[MAX_LATE];
    if (threads < 1 || threads > MAX_LATE) return 2;
    // Each thread has its own open file, like separate programs, because the kernel reads ahead for
    // each open file separately.
    static int fds[MAX_LATE];
    for (int i = 0; i < threads; i++) fds[i] = opened_before(operation, path);
    puts("ready");
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) return 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    for (int i = 0; i < threads; i++) {
        all[i] = (struct late){operation, path, fds[i], i, 0};
        if (pthread_create(&ids[i], &attributes, act, &all[i])) fail("thread");
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (int i = 0; i < threads; i++) puts(result_name(all[i].result));
    fflush(stdout);
    return 0;
}
