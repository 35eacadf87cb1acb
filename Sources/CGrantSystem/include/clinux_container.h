#pragma once

// These enter the mount namespace of the process `pid` and return, so the caller must have one thread. Its working directory and root are
// those of its own namespace afterwards.

// Opens a detached copy of the FUSE mount at an absolute path (open_tree(2), Linux 5.2).
//
// Links are refused. Returns -ENODEV if there is no such mount.
int clinux_copy_mount(int pid, const char *path);
// Attaches the detached mount `tree` at the absolute `path` below the directory `root`.
//
// Links in `path` do not leave `root`, and missing directories are made.
int clinux_attach_mount(int tree, int pid, const char *root, const char *path);
