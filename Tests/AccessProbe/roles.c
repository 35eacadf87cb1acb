// Small programs that tests need beside the probe itself.
#include "probe.h"
#include <poll.h>
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

static void say(const char *what) {
    puts(what);
    fflush(stdout);
}

static void wait_for_line(void) {
    char line[64];
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

// lock FILE fcntl|ofd|flock try|wait: takes an exclusive lock, prints the result, and holds it
// until a line comes.
int run_lock(int count, char **arguments) {
    (void)count;
    int fd = open(arguments[0], O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(arguments[0]);
    bool wait = !strcmp(arguments[2], "wait");
    if (wait) say("waiting");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
    int result;
    if (!strcmp(arguments[1], "flock")) result = RESULT(flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)));
    else if (!strcmp(arguments[1], "ofd")) result = RESULT(fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock));
    else result = RESULT(fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock));
    say(result_name(result));
    wait_for_line();
    return 0;
}

// ranges FILE fcntl|ofd: each line `try|wait|free START` locks or unlocks ten bytes from START, and
// the result is printed. A line that may wait prints `waiting` first.
int run_ranges(const char *file, const char *kind) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(file);
    bool ofd = !strcmp(kind, "ofd");
    say("ready");
    char what[8];
    long start;
    while (scanf("%7s %ld", what, &start) == 2) {
        struct flock lock = {.l_type = *what == 'f' ? F_UNLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
        bool wait = *what == 'w';
        if (wait) say("waiting");
        say(result_name(RESULT(fcntl(fd, ofd ? (wait ? F_OFD_SETLKW : F_OFD_SETLK) : (wait ? F_SETLKW : F_SETLK), &lock))));
    }
    return 0;
}

// dirty FILE: stores 'Z' into every page of a shared mapping and never syncs it. After a line it
// tries to store 'Y' as well, and prints the result of msync(2).
int run_dirty(const char *file) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) fail(file);
    unsigned char *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail(file);
    for (off_t at = 0; at < st.st_size; at += PAGE) map[at] = 'Z';
    say("ready");
    wait_for_line();
    catch_bus();
    for (off_t at = 0; at < st.st_size; at += PAGE) store_byte(map, (size_t)at, 'Y');
    say(result_name(RESULT(msync(map, (size_t)st.st_size, MS_SYNC))));
    wait_for_line();
    return 0;
}

// swap A B: exchanges the two names without a pause, until a line comes.
int run_swap(const char *left, const char *right) {
    say("ready");
    struct pollfd input = {0, POLLIN, 0};
    while (poll(&input, 1, 0) == 0)
        for (int i = 0; i < 100; i++)
            if (renameat2(AT_FDCWD, left, AT_FDCWD, right, RENAME_EXCHANGE)) fail("exchange");
    return 0;
}

// connect SOCKET: prints what a stranger sees: the errno of connect(2), "closed" when the other
// side hangs up, "open" when it waits.
int run_connect(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        say(result_name(errno));
        return 0;
    }
    struct pollfd item = {fd, POLLIN, 0};
    char byte;
    if (poll(&item, 1, 30000) == 0) say("open");
    else say(read(fd, &byte, 1) <= 0 ? "closed" : "answered");
    return 0;
}

// seekdir DIR: checks that every position from readdir(3) leads back to the entry after it.
int run_seekdir(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) fail(path);
    size_t count = 0, capacity = 1024;
    long *positions = malloc(capacity * sizeof *positions);
    char(*names)[NAME_MAX + 1] = malloc(capacity * sizeof *names);
    for (;;) {
        long position = telldir(dir);
        struct dirent *entry = readdir(dir);
        if (!entry) break;
        if (count == capacity) {
            capacity *= 2;
            positions = realloc(positions, capacity * sizeof *positions);
            names = realloc(names, capacity * sizeof *names);
        }
        positions[count] = position;
        snprintf(names[count++], sizeof *names, "%s", entry->d_name);
    }
    size_t wrong = 0, step = 7919;
    for (size_t i = 0, at = 0; i < count && i < 2000; i++, at = (at + step) % count) {
        seekdir(dir, positions[at]);
        struct dirent *entry = readdir(dir);
        if (!entry || strcmp(entry->d_name, names[at])) wrong++;
    }
    printf("{\"entries\":%zu,\"wrong\":%zu}\n", count, wrong);
    closedir(dir);
    return 0;
}

// stuck FILE: opens and reads a file that may never reply, and prints the result.
int run_stuck(const char *file) {
    say("ready");
    char bytes[PAGE];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int result = fd < 0 ? errno : RESULT(read(fd, bytes, sizeof bytes));
    say(result_name(result));
    wait_for_line();
    return 0;
}

// refused FILE: opens it, waits for a line, changes it in ways that only the daemon can refuse,
// prints both results, and closes it.
int run_refused(const char *file) {
    int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(file);
    say("ready");
    wait_for_line();
    say(result_name(RESULT(fallocate(fd, 0, 0, FILE_SIZE))));
    loff_t from = 0, to = PAGE;
    say(result_name(RESULT(copy_file_range(fd, &from, fd, &to, PAGE, 0))));
    say(result_name(RESULT(close(fd))));
    return 0;
}

// peek FILE: holds it open and mapped. Each line `map` or `read` prints its first byte by that way.
int run_peek(const char *file) {
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    volatile unsigned char *map = fd < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail(file);
    say("ready");
    char line[64], byte;
    while (fgets(line, sizeof line, stdin)) {
        byte = (char)map[0];
        if (!strncmp(line, "read", 4) && pread(fd, &byte, 1, 0) != 1) fail(file);
        say((char[]){byte, 0});
    }
    return 0;
}
