#pragma once

// Opens a detached copy of the mount at an absolute path (open_tree(2), Linux 5.2). Links are refused.
int clinux_copy_mount(const char *path);
// Attaches the detached mount `tree` in the mount namespace of the process `pid`, at the absolute `path` below the directory `root`.
//
// Links in `path` do not leave `root`, and missing directories are made. The process enters the namespace and returns, so it must have
// one thread, and its working directory and root are those of its namespace afterwards.
int clinux_attach_mount(int tree, int pid, const char *root, const char *path);
