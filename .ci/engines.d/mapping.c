// Maps a file, prints its first letter every 100 ms, and “refused” when the mapping can no longer be read: mapping FILE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf refused;

static void on_signal(int number) { siglongjmp(refused, number); }

int main(int count, char **words) {
    int file = count == 2 ? open(words[1], O_RDONLY) : -1;
    const volatile char *bytes = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    if (file == -1 || bytes == MAP_FAILED)
        return 1;
    close(file);
    signal(SIGBUS, on_signal);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        if (sigsetjmp(refused, 1) == 0)
            printf("%c\n", bytes[0]);
        else
            puts("refused");
        usleep(100000);
    }
}
