// Calls that reach a limit, and calls that a running program forbids.
#include "table.h"
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

// More links than a filesystem with a usual limit allows. A filesystem without a limit allows them
// all.
enum { LINKS = 65100 };

static void print_links(void) {
    char name[32];
    int made = 0, result = 0;
    if (mknod("linked", S_IFREG | 0600, 0)) fail("linked");
    while (made < LINKS && result == 0) {
        snprintf(name, sizeof name, "link%d", made);
        result = TRY(link("linked", name));
        made += result == 0;
    }
    struct stat status;
    if (stat("linked", &status)) fail("linked");
    printf("limits: links: %d made, %s, %lu counted\n", made, result ? strerrorname_np(result) : "OK", (unsigned long)status.st_nlink);
    while (made-- > 0) {
        snprintf(name, sizeof name, "link%d", made);
        unlink(name);
    }
    unlink("linked");
}

static void print_depth(void) {
    char path[PATH_MAX + 400] = "deep";
    int result = TRY(mkdir(path, 0700)), made = 0;
    for (size_t length = strlen(path); result == 0 && length < PATH_MAX + 200; made++) {
        path[length] = '/';
        memset(path + length + 1, 'd', 200);
        path[length += 201] = 0;
        result = TRY(mkdir(path, 0700));
    }
    printf("limits: paths: %d deep, %s\n", made, strerrorname_np(result));
    for (size_t length = strlen(path); length > 4; length -= 201) {
        path[length] = 0;
        rmdir(path);
    }
    rmdir("deep");
}

static int opened(int flags) {
    int fd = open("program", flags | O_CLOEXEC);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

static void print_running(void) {
    int from = open("/bin/sleep", O_RDONLY | O_CLOEXEC), to = open("program", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    char bytes[65536];
    for (ssize_t count; (count = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, (size_t)count) != count) fail("program");
    close(from);
    close(to);
    char *words[] = {"program", "60", NULL}, *none[] = {NULL};
    pid_t child;
    if (posix_spawn(&child, "./program", NULL, NULL, words, none)) fail("running it");
    printf("limits: a running program: %d %d %d %d %d", opened(O_RDONLY), opened(O_WRONLY), opened(O_RDWR), opened(O_WRONLY | O_TRUNC),
        TRY(truncate("program", 0)));
    printf(" renamed %d, linked %d, removed %d", TRY(rename("program", "moved")), TRY(link("moved", "program")), TRY(unlink("moved")));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf(", afterwards %d\n", opened(O_WRONLY));
    unlink("program");
}

void print_limits(void) {
    print_links();
    print_depth();
    print_running();
    struct stat status;
    static const long seconds[] = {-1, -(1L << 33), 2147483648, 4294967296, 5000000000, 1L << 40};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        struct timespec both[] = {{seconds[i], 1}, {seconds[i], 2}};
        if (mknod("timed", S_IFREG | 0600, 0)) fail("timed");
        int result = TRY(utimensat(AT_FDCWD, "timed", both, 0));
        if (stat("timed", &status)) fail("timed");
        // ext4 cuts off times that it cannot store. With write-back the kernel uses its own time of
        // change, and FUSE allows any value.
        bool fits = seconds[i] >= -2147483648 && seconds[i] <= 15032385535;
        struct timespec time = fits ? status.st_mtim : status.st_atim;
        printf("limits: time %ld: %d, %lld.%09ld\n", seconds[i], result, (long long)time.tv_sec, time.tv_nsec);
        unlink("timed");
    }
}
