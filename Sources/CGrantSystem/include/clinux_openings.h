#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Openings that wait until they are allowed: fanotify(7), FAN_OPEN_PERM. A group belongs to one thread, which has a table of descriptors of its own.

// Whether the kernel counts who opens a file before it asks whether the file may be opened (Linux 6.1): else an opening could slip through
// between a mark and the look at the counts.
bool clinux_openings_are_counted_first(void);
// An eventfd(2), by which others wake the thread.
int clinux_openings_wakeup_open(void);
void clinux_openings_wakeup(int wakeup);
// Gives the calling thread a table of descriptors that has nothing in it but `wakeup`, and returns a group in it. -EPERM without CAP_SYS_ADMIN.
//
// The kernel makes a descriptor for each event, and denies the opening when there is no room for it: that is why the table is nobody else's. And
// a daemon that is killed while one of its threads hangs in a filesystem keeps the threads' common table open: openings would wait for that.
// To be called before the daemon gives up making such tables, and never from a thread that makes others, which would get this table.
int clinux_openings_begin(int wakeup);
// How many descriptors a table may have.
long clinux_openings_room(void);
// Has openings of the file behind `fd`, a descriptor of the process's common table, wait. Returns an O_PATH descriptor in the thread's table, to
// be given to clinux_openings_unmark.
int clinux_openings_mark(int group, int fd);
void clinux_openings_unmark(int group, int path);
// Waits for an opening or the bell for so many milliseconds, -1: for ever; uses up the bell. `looks`: whether for openings at all.
void clinux_openings_wait(int group, int wakeup, int milliseconds, bool looks);
// The next opening that waits: who opens (a thread group's id), and a descriptor of the file, to be given to clinux_openings_allow. False: there is none.
bool clinux_openings_next(int group, pid_t *process, int *fd);
void clinux_openings_allow(int group, int fd);

// Whether `fd` is the only open file description of its file, mappings included: F_SETLEASE of fcntl(2), for a moment. Needs CAP_LEASE or the
// file's owner. Whoever opens the file in this moment is kept waiting, or fails with EWOULDBLOCK if he does not wish to,
// unless openings of it are marked.
bool clinux_is_sole_opening(int fd);
// Whether the kernel has the file itself, rather than a server, another filesystem or a program: nobody can change it without the kernel's
// counting it as open.
bool clinux_is_on_own_disk(int fd);
