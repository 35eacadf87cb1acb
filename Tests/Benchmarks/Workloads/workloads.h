// Small loops of system calls, timed by the program itself, so that a result includes neither the
// start of a program nor an interpreter.
#pragma once
#include <stdint.h>
#include <stdio.h>

/// One loop. `prepare` makes the files of `run` below the directory in which the program was
/// started, and is not timed.
struct workload {
    const char *name;
    void (*prepare)(void);
    void (*run)(void);
};

extern const struct workload reading[], writing[], names[];

/// Puts data into the buffer that loops write. Called before the measurement.
void fill_buffer(void);
/// Prints the error and ends the program.
_Noreturn void fail(const char *what);
/// Returns the result of a call, or ends the program if it is negative.
long check(long result, const char *what);
/// A pseudo-random number, from the same sequence in every run.
uint32_t pick(void);
/// Makes a file of `size` bytes without holes, unless it exists in that size.
void make_file(const char *name, long size);
