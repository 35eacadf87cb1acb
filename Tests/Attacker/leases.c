// leases PATH COUNT [read]: takes a write lease, or a read lease, on each of COUNT files. %d in PATH is replaced by the
// file's number. It ignores the signals that break a lease. After a line it removes all leases and prints "given".
#include "attacker.h"
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int attack_leases(int count, char **arguments) {
    if (count != 2 && count != 3) return 2;
    bool reads = count == 3;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGIO, SIG_IGN);
    int many = atoi(arguments[1]), *files = calloc((size_t)many, sizeof *files);
    for (int i = 0; i < many; i++) {
        char path[4096];
        snprintf(path, sizeof path, arguments[0], i);
        files[i] = open(path, reads ? O_RDONLY : O_RDWR | O_CREAT, 0666);
        char byte;
        // A revocation is concerned only with files that have pages in the kernel.
        if (files[i] >= 0) (void)!pread(files[i], &byte, 1, 0);
        if (files[i] < 0 || fcntl(files[i], F_SETLEASE, reads ? F_RDLCK : F_WRLCK)) attack_failed(path);
    }
    attack_ready();
    if (!attack_wait()) return 0;
    for (int i = 0; i < many; i++) {
        fcntl(files[i], F_SETLEASE, F_UNLCK);
        close(files[i]);
    }
    puts("given");
    fflush(stdout);
    attack_wait();
    return 0;
}
