#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Directories whose files are shown with other owners: idmapped mounts (mount_setattr(2), Linux 5.12).

// Makes a user namespace without processes. `users` and `groups` are the contents of its uid_map and gid_map.
//
// Needs CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID.
int clinux_owners_namespace(const char *users, const char *groups);
// Opens a directory (O_PATH) again, on a copy of its mount that has no place and maps owners by a user namespace.
//
// Its files have the owners that such a mount shows in this namespace, and everything is done for these owners. From now on the paths
// of its files are those that they have on the mount that was copied, until clinux_forget_owners. Returns -EINVAL if the filesystem
// cannot map owners, -EAGAIN if the directory was renamed meanwhile.
int clinux_open_with_owners(int directory, int namespace);
// The same paths, for a directory on such a copy that another process has made. `prefix`: the path of the mount that was copied.
int clinux_know_owners(int directory, const char *prefix, size_t length);
// A number for the copy that a descriptor is on, or 0.
uint64_t clinux_owners_number(int fd);
// Forgets the path of a copy.
void clinux_forget_owners(uint64_t number);
// Changes the path of a descriptor from that on its copy. Returns its new length, or a negative error number.
ssize_t clinux_owners_path(int fd, char *path, ssize_t length, size_t size);
