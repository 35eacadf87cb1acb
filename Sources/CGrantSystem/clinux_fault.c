#include "clinux_fault.h"
#include <stddef.h>

__attribute__((weak, noinline)) const char *clinux_injected(enum clinux_fault fault) {
    (void)fault;
    return NULL;
}

__attribute__((weak, noinline)) const char *clinux_program_suffix(void) { return ""; }
