// Small loops of system calls, timed from within, so that neither the start of a program nor an interpreter is part of a figure.
#pragma once
#include <stdint.h>
#include <stdio.h>

/// One loop. `prepare` makes what `run` needs, below the directory the program was started in, and is not timed.
struct workload {
    const char *name;
    void (*prepare)(void);
    void (*run)(void);
};

extern const struct workload reading[], writing[], names[];

/// Puts data into what is written. Before the time is taken.
void fill_buffer(void);
/// Ends the program with what went wrong.
_Noreturn void fail(const char *what);
/// The number, unless it is negative: then the program ends.
long check(long result, const char *what);
/// A pseudo-random number; the same sequence in every run.
uint32_t pick(void);
/// Makes a file of `size` bytes, none of them in a hole, unless it is there in that size.
void make_file(const char *name, long size);
