#pragma once

#define FUSE_USE_VERSION 314
#include <fuse.h>

// Waits for as long as the control file says that `operation` hangs. A file without words hangs everything.
void pass(const char *operation);
void set_control_file(const char *path);

// Passes every operation on to the directory `root`, each through `pass` first.
extern const struct fuse_operations operations;
extern int root;
