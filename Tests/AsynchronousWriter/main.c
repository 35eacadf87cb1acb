// AsynchronousWriter FILE WRITES [READERS]
// Writes to FILE past the cache, asynchronously (io_submit(2) on a descriptor with O_DIRECT), while
// threads read it through the cache. After a write has completed, a read through the cache must
// return the written data. Prints the number of reads that returned older data, and exits with 1 if
// there were any.
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, BLOCKS = 4, READERS_AT_MOST = 16 };
static const char *path;
static atomic_bool ended;
/// The number that the last completed write of each block stored throughout the block. A later read
/// must not return a lower one.
static _Atomic uint64_t completed[BLOCKS];
static atomic_ulong old, reads;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", path, what, strerror(errno));
    exit(2);
}

static void look(int fd, unsigned block, uint64_t *buffer) {
    uint64_t least = atomic_load(&completed[block]);
    if (pread(fd, buffer, BLOCK, (off_t)block * BLOCK) != BLOCK) fail("pread");
    atomic_fetch_add(&reads, 1);
    for (unsigned i = 0; i < BLOCK / sizeof *buffer; i += 512)
        if (buffer[i] < least) {
            atomic_fetch_add(&old, 1);
            return;
        }
}

static void *reader(void *argument) {
    int fd = open(path, O_RDONLY);
    if (fd == -1) fail("open");
    uint64_t *buffer = malloc(BLOCK);
    for (unsigned turn = (unsigned)(uintptr_t)argument; !atomic_load(&ended); turn++) look(fd, turn % BLOCKS, buffer);
    free(buffer);
    close(fd);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    path = arguments[1];
    unsigned long writes = strtoul(arguments[2], NULL, 0);
    unsigned readers = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 0) : 3;
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0666), cached = open(path, O_RDONLY);
    uint64_t *buffer = NULL, *own = malloc(BLOCK);
    if (fd == -1 || cached == -1 || readers > READERS_AT_MOST || posix_memalign((void **)&buffer, 4096, BLOCK)) fail("open");
    memset(buffer, 0, BLOCK);
    for (unsigned block = 0; block < BLOCKS; block++)
        if (pwrite(fd, buffer, BLOCK, (off_t)block * BLOCK) != BLOCK) fail("pwrite");
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 8, &context) == -1) fail("io_setup");
    pthread_t threads[READERS_AT_MOST];
    for (unsigned i = 0; i < readers; i++) pthread_create(&threads[i], NULL, reader, (void *)(uintptr_t)i);
    for (unsigned long number = 1; number <= writes; number++) {
        unsigned block = (unsigned)(number % BLOCKS);
        for (unsigned i = 0; i < BLOCK / sizeof *buffer; i++) buffer[i] = number;
        struct iocb call = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (uint32_t)fd, .aio_buf = (uintptr_t)buffer, .aio_nbytes = BLOCK,
                            .aio_offset = (int64_t)block * BLOCK}, *calls[] = {&call};
        struct io_event event;
        if (syscall(SYS_io_submit, context, 1, calls) != 1) fail("io_submit");
        while (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
            if (errno != EINTR) fail("io_getevents");
        if (event.res != BLOCK) fail("the write");
        atomic_store(&completed[block], number);
        look(cached, block, own);
    }
    atomic_store(&ended, true);
    for (unsigned i = 0; i < readers; i++) pthread_join(threads[i], NULL);
    syscall(SYS_io_destroy, context);
    printf("%lu old of %lu reads\n", atomic_load(&old), atomic_load(&reads));
    return atomic_load(&old) ? 1 : 0;
}
