#pragma once

#define FUSE_USE_VERSION 314
#include <fuse.h>
#include <stdbool.h>

// Waits for as long as the control file lets `operation` hang. A file without words hangs everything. A word like
// `read=5` makes the operation fail with that errno, which is returned. Otherwise the result is 0.
int pass(const char *operation);
#define PASS(operation)                          \
    do {                                         \
        int error_to_give = pass(operation);     \
        if (error_to_give) return -error_to_give; \
    } while (0)
void set_control_file(const char *path);

// Whether operations run as their caller, and as the anonymous user for root.
extern bool squashes;

// Forwards every operation to the directory `root`, each through `pass` first.
extern const struct fuse_operations operations;
extern int root;
