// lock-bystander FILE ROUNDS: measures the open, read and close of FILE by an uninvolved process. Each line on standard
// input starts one measurement of ROUNDS rounds. It prints the median and the worst time in microseconds.
#include "attacker.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int order(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int attack_lock_bystander(int count, char **arguments) {
    if (count < 2) return 2;
    int rounds = atoi(arguments[1]);
    double *times = calloc((size_t)rounds, sizeof *times);
    attack_ready();
    while (attack_wait()) {
        for (int round = 0; round < rounds; round++) {
            char byte;
            double began = now();
            int fd = open(arguments[0], O_RDONLY | O_CLOEXEC);
            if (fd == -1 || read(fd, &byte, 1) < 0) attack_failed(arguments[0]);
            close(fd);
            times[round] = now() - began;
        }
        qsort(times, (size_t)rounds, sizeof *times, order);
        printf("%.1f %.1f\n", times[rounds / 2], times[rounds - 1]);
        fflush(stdout);
    }
    return 0;
}
