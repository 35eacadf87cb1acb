// late CALL DIRECTORY: a thread of the lowest priority makes one call on a processor that other
// threads keep busy, so that it processes the reply late. At the first line the thread makes its
// call, at the second one the processor gets busy, and at the third one it is idle again. Then the
// thread inspects the file and prints the result: “OK”, the name of an error, or “SIGBUS”.
// CALL is `link`, `chmod`, `truncate`, `getattr` or `statx` (with the birth time) of “file”, `lookup`
// of “unknown”, or `create`, `mknod`, `mkdir` or `symlink` of “new”. `tmpfile` makes a file without a
// name. `list` lists the directory and then looks up “unknown”. `fault` reads a page of “file”, and
// `readlink` the symbolic link “link”, and both do it again at the end.
#include "attacker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_THREADS = 8 };
static const char *call;
static int directory, file;
// The name that the call has reported, and that is looked up afterwards.
static const char *told;
static sem_t asked;
static atomic_bool stopped;
static const volatile char *page;
static sigjmp_buf back;

static void bus(int signal) { siglongjmp(back, signal); }

static void use_first_processor(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (sched_setaffinity(0, sizeof set, &set) == -1) attack_failed("sched_setaffinity");
}

static void *keep_busy(void *unused) {
    use_first_processor();
    while (!stopped) {}
    return unused;
}

static const char *fault(void) {
    if (sigsetjmp(back, 1)) return "SIGBUS";
    return *page ? "OK" : "other";
}

// Makes the call and returns its result. `file` is then the descriptor to inspect.
static int make_call(void) {
    struct statx status;
    if (!strcmp(call, "link")) return linkat(directory, "file", directory, "new", 0);
    if (!strcmp(call, "chmod")) return fchmod(file, 0600);
    if (!strcmp(call, "truncate")) return ftruncate(file, 100);
    if (!strcmp(call, "getattr")) return statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &status);
    if (!strcmp(call, "statx")) return statx(file, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &status);
    if (!strcmp(call, "readlink")) {
        char text[64];
        return readlinkat(directory, "link", text, sizeof text) == -1 ? -1 : 0;
    }
    if (!strcmp(call, "lookup")) return file = openat(directory, "unknown", O_PATH);
    if (!strcmp(call, "mknod")) return told = "new", mknodat(directory, "new", S_IFIFO | 0600, 0);
    if (!strcmp(call, "mkdir")) return told = "new", mkdirat(directory, "new", 0700);
    if (!strcmp(call, "symlink")) return told = "new", symlinkat("file", directory, "new");
    if (!strcmp(call, "list")) {
        static char names[4096];
        return told = "unknown", getdents64(directory, names, sizeof names) == -1 ? -1 : 0;
    }
    if (!strcmp(call, "create")) return file = openat(directory, "new", O_CREAT | O_EXCL | O_RDWR, 0600);
    if (!strcmp(call, "tmpfile")) return file = openat(directory, ".", O_TMPFILE | O_RDWR, 0600);
    errno = EINVAL;
    attack_failed(call);
}

static void *make_late_call(void *result) {
    struct sched_param none = {0};
    struct stat status;
    use_first_processor();
    if (sched_setscheduler(0, SCHED_IDLE, &none) == -1) attack_failed("SCHED_IDLE");
    const char **found = result;
    int error = 0;
    if (page != NULL)
        fault();
    else if (make_call() == -1)
        error = errno;
    while (sem_wait(&asked) == -1) {}
    if (page != NULL) {
        *found = fault();
        return NULL;
    }
    if (error == 0 && !strcmp(call, "readlink") && make_call() == -1) error = errno;
    if (error == 0 && told != NULL && (file = openat(directory, told, O_PATH | O_NOFOLLOW)) == -1) error = errno;
    if (error == 0 && fstat(file, &status) == -1) error = errno;
    *found = error == 0 ? "OK" : strerrorname_np(error);
    return NULL;
}

int attack_late(int count, char **arguments) {
    if (count != 2) return 2;
    call = arguments[0];
    directory = open(arguments[1], O_RDONLY | O_DIRECTORY);
    file = openat(directory, "file", O_RDWR);
    if (directory == -1 || file == -1) attack_failed(arguments[1]);
    if (!strcmp(call, "fault")) {
        const size_t size = 4096;
        void *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED || madvise(mapped, size, MADV_RANDOM) == -1) attack_failed("mmap");
        page = mapped;
        signal(SIGBUS, bus);
    }
    sem_init(&asked, 0, 0);
    attack_ready();

    pthread_t late, busy[BUSY_THREADS];
    const char *found = "nothing";
    if (!attack_wait()) return 1;
    if ((errno = pthread_create(&late, NULL, make_late_call, &found))) attack_failed("pthread_create");
    if (!attack_wait()) return 1;
    for (int i = 0; i < BUSY_THREADS; i++)
        if ((errno = pthread_create(&busy[i], NULL, keep_busy, NULL))) attack_failed("pthread_create");
    puts("busy");
    fflush(stdout);
    if (!attack_wait()) return 1;
    stopped = true;
    sem_post(&asked);
    pthread_join(late, NULL);
    puts(found);
    fflush(stdout);
    return 0;
}
