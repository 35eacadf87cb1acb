// Calls by descriptor and their limits: leases, pipes, advice, mappings, ranges, the file size
// limit, continued listings, mount points.
#include "table.h"
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

static const char *name(int error) { return error ? strerrorname_np(error) : "OK"; }

// A new file of 10,000 letters.
static int made(int flags) {
    static char text[10000];
    memset(text, 'x', sizeof text);
    int fd = open("a", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, sizeof text) != sizeof text || close(fd)) fail("a");
    fd = open("a", flags | O_CLOEXEC);
    if (fd < 0) fail("a");
    return fd;
}
static int opened(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) fail(path);
    return fd;
}

static void print_leases(void) {
    int fd = made(O_RDONLY);
    printf("lease: read %s", name(TRY(fcntl(fd, F_SETLEASE, F_RDLCK))));
    fcntl(fd, F_SETLEASE, F_UNLCK);
    close(fd);
    fd = opened("a", O_RDWR);
    printf(", write %s", name(TRY(fcntl(fd, F_SETLEASE, F_WRLCK))));
    signal(SIGIO, SIG_IGN);
    int other = open("a", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    printf(", opened meanwhile %s, then %d\n", name(other < 0 ? errno : 0), fcntl(fd, F_GETLEASE));
    fcntl(fd, F_SETLEASE, F_UNLCK);
    close(fd);
    if (other >= 0) close(other);
}

static void print_pipes(void) {
    int fd = made(O_RDWR), both[2];
    char bytes[8] = "";
    if (pipe2(both, O_CLOEXEC)) fail("pipe");
    loff_t place = 100;
    printf("splice: out %zd", splice(fd, &place, both[1], NULL, 5, 0));
    printf(" in %zd", splice(both[0], NULL, fd, NULL, 5, 0));
    printf(", read %zd %s", pread(fd, bytes, 5, 0), bytes);
    int appending = opened("a", O_WRONLY | O_APPEND);
    (void)!write(both[1], "hello", 5);
    ssize_t count = splice(both[0], NULL, appending, NULL, 5, 0);
    printf(", to O_APPEND %s\n", name(count < 0 ? errno : 0));
    close(fd), close(appending), close(both[0]), close(both[1]);
}

static void print_memory(void) {
    static const struct { const char *name; int advice; } advices[] = {
        {"DONTNEED", 4}, {"REMOVE", 9}, {"POPULATE_READ", 22}, {"POPULATE_WRITE", 23}, {"COLD", 20}, {"PAGEOUT", 21}, {"FREE", 8},
    };
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        int fd = made(O_RDWR);
        char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), byte = 0;
        map[1] = 'y', map[5000] = 'z';
        int error = TRY(madvise(map, 4096, advices[i].advice));
        (void)!pread(fd, &byte, 1, 1);
        printf("madvise %s: %s, %d %d %d\n", advices[i].name, name(error), map[1], byte, map[5000]);
        munmap(map, 8192);
        close(fd);
    }
    static const struct { const char *name; int flags, protection, access; } maps[] = {
        {"MAP_SHARED_VALIDATE", MAP_SHARED_VALIDATE, 3, O_RDWR}, {"MAP_SYNC", MAP_SHARED_VALIDATE | MAP_SYNC, 3, O_RDWR},
        {"MAP_POPULATE", MAP_SHARED | MAP_POPULATE, 3, O_RDWR}, {"MAP_HUGETLB", MAP_PRIVATE | MAP_HUGETLB, 3, O_RDWR},
        {"shared, writable, of what is read-only", MAP_SHARED, 3, O_RDONLY}, {"private of what is read-only", MAP_PRIVATE, 3, O_RDONLY},
        {"of what can be written only", MAP_SHARED, 1, O_WRONLY}, {"to run", MAP_PRIVATE, 5, O_RDONLY}, {"of O_PATH", MAP_SHARED, 1, O_PATH},
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        int fd = made(maps[i].access);
        void *map = mmap(NULL, 4096, maps[i].protection, maps[i].flags, fd, 0);
        printf("mmap %s: %s\n", maps[i].name, name(map == MAP_FAILED ? errno : 0));
        if (map != MAP_FAILED) munmap(map, 4096);
        close(fd);
    }
}

static void print_ranges(void) {
    static const struct { const char *name; int mode; off_t start, length; int access; } areas[] = {
        {"nothing", 0, 0, 0, O_RDWR}, {"before the beginning", 0, -1, 1, O_RDWR}, {"too far", 0, INT64_MAX, 1, O_RDWR},
        {"farther than any", 0, 1L << 60, 1, O_RDWR}, {"unknown mode", 0x100, 0, 1, O_RDWR}, {"punching and growing", 2, 0, 1, O_RDWR},
        {"punching and zeroing", 0x13, 0, 1, O_RDWR}, {"read-only", 0, 0, 1, O_RDONLY}, {"O_PATH", 0, 0, 1, O_PATH},
    };
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
        int fd = made(areas[i].access);
        printf("fallocate, %s: %s\n", areas[i].name, name(TRY(fallocate(fd, areas[i].mode, areas[i].start, areas[i].length))));
        close(fd);
    }
    static const struct { const char *name; off_t from, to; size_t length; int access; } copies[] = {
        {"overlapping", 0, 100, 1000, O_RDWR}, {"side by side", 0, 1000, 1000, O_RDWR}, {"from behind the end", 20000, 0, 10, O_RDWR},
        {"to O_APPEND", 0, 0, 10, O_WRONLY | O_APPEND}, {"to O_RDONLY", 0, 0, 10, O_RDONLY}, {"as much as there is", 0, 20000, SIZE_MAX / 2, O_RDWR},
        {"too far", 0, INT64_MAX - 5, 10, O_RDWR}, {"before the beginning", -1, 0, 10, O_RDWR},
    };
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        int to = made(copies[i].access), from = opened("a", O_RDONLY);
        off_t in = copies[i].from, out = copies[i].to;
        ssize_t count = copy_file_range(from, &in, to, &out, copies[i].length, 0);
        printf("copy_file_range, %s: %zd %s\n", copies[i].name, count, name(count < 0 ? errno : 0));
        close(from), close(to);
    }
}

static void print_size_limit(void) {
    struct rlimit before, limit;
    if (getrlimit(RLIMIT_FSIZE, &before)) fail("getrlimit");
    limit = (struct rlimit){12000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    int fd = made(O_RDWR), from = opened("a", O_RDONLY);
    static char more[8192];
    if (setrlimit(RLIMIT_FSIZE, &limit)) fail("setrlimit");
    printf("file size limit: up to it %zd", pwrite(fd, more, sizeof more, 9000));
    printf(", beyond %s", name(TRY(pwrite(fd, more, 1, 12000))));
    printf(", ftruncate %s %s", name(TRY(ftruncate(fd, 12000))), name(TRY(ftruncate(fd, 12001))));
    printf(", fallocate %s %s", name(TRY(fallocate(fd, 0, 0, 12001))), name(TRY(fallocate(fd, 1, 0, 20000))));
    off_t in = 0, out = 11990;
    printf(", copy %zd\n", copy_file_range(from, &in, fd, &out, 100, 0));
    if (setrlimit(RLIMIT_FSIZE, &before)) fail("setrlimit");
    signal(SIGXFSZ, SIG_DFL);
    close(fd), close(from);
}

static void print_listing(DIR *stream, const char *when) {
    int count = 0, made = 0, gone = 0;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL; count++) made += strcmp(entry->d_name, "new") == 0, gone += strcmp(entry->d_name, "0") == 0;
    printf(" %s %d, the new %d, the removed %d;", when, count, made, gone);
}

static void print_listings(void) {
    char path[32];
    if (mkdir("l", 0755)) fail("l");
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "l/%d", i);
        if (mknod(path, S_IFREG | 0600, 0)) fail(path);
    }
    DIR *stream = opendir("l");
    if (stream == NULL) fail("l");
    printf("listings:");
    print_listing(stream, "first");
    if (mknod("l/new", S_IFREG | 0600, 0) || unlink("l/0")) fail("l/new");
    rewinddir(stream);
    print_listing(stream, "rewound");
    if (unlink("l/new")) fail("l/new");
    seekdir(stream, 0);
    print_listing(stream, "from the start");
    closedir(stream);
    int fd = opened("l", O_RDONLY | O_DIRECTORY);
    clear_tree();
    struct stat status;
    printf(" removed: %lu links", fstat(fd, &status) ? 99 : (unsigned long)status.st_nlink);
    printf(", %s in it\n", name(TRY(mkdirat(fd, "x", 0700))));
    close(fd);
}

static void print_mount_point(void) {
    if (mkdir("m", 0755) || mkdir("n", 0755)) fail("m");
    if (mount("none", "m", "tmpfs", 0, NULL)) fail("mounting");
    printf("mount point: rmdir %s", name(TRY(rmdir("m"))));
    printf(", rename %s", name(TRY(rename("m", "k"))));
    printf(", over it %s", name(TRY(rename("n", "m"))));
    printf(", out of it %s", name((close(open("m/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), TRY(rename("m/f", "f")))));
    printf(", link out of it %s\n", name(TRY(link("m/f", "f"))));
    if (umount("m")) fail("unmounting");
    clear_tree();
}

void print_descriptors(void) {
    print_leases();
    print_pipes();
    print_memory();
    print_ranges();
    print_size_limit();
    clear_tree();
    print_listings();
    print_mount_point();
}
