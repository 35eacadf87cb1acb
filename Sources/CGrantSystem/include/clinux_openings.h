#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Permission events for open(2): fanotify(7), FAN_OPEN_PERM. A group belongs to one thread, which has a descriptor table of its
// own.

// Whether the kernel counts an open before it asks for permission (Linux 6.1). Otherwise an open could slip through between the
// mark and the check of the counts.
bool clinux_openings_are_counted_first(void);
// Makes a wake-up descriptor (eventfd(2)).
int clinux_openings_wakeup_open(void);
void clinux_openings_wakeup(int wakeup);
// Gives the calling thread a descriptor table that contains only `wakeup`, and returns a fanotify group in it. -EPERM without
// CAP_SYS_ADMIN.
//
// The kernel makes a descriptor for each event and denies the open when the table is full, so nobody else may use the table. And a
// daemon that is killed while one of its threads hangs in a filesystem keeps the shared table open: openers would wait for that.
// Call it before the daemon gives up the right to make such tables, and never from a thread that starts others, which would get
// this table.
int clinux_openings_begin(int wakeup);
// How many descriptors the table may have.
long clinux_openings_room(void);
// Makes opens of the file behind `fd` (a descriptor of the process's shared table) wait. Returns an O_PATH descriptor in the
// thread's table, for clinux_openings_unmark.
int clinux_openings_mark(int group, int fd);
void clinux_openings_unmark(int group, int path);
// Waits for a permission event or the wake-up descriptor, which it drains, for that many milliseconds (-1: for ever). `looks`:
// whether to wait for events.
void clinux_openings_wait(int group, int wakeup, int milliseconds, bool looks);
// The next open that waits: the opener's process ID, and a descriptor of the file for clinux_openings_allow. False when there is
// none.
bool clinux_openings_next(int group, pid_t *process, int *fd);
void clinux_openings_allow(int group, int fd);

// Whether `fd` is the only open file description of its file, mappings included, found out by a short lease (F_SETLEASE of
// fcntl(2)). Needs CAP_LEASE or ownership. An open in this moment waits, or fails with EWOULDBLOCK if it is non-blocking, unless
// opens of the file are marked.
bool clinux_is_sole_opening(int fd);
// Whether this kernel alone stores the file, not a server, another filesystem or a program: then nobody can change it without an
// open that the kernel counts.
bool clinux_is_on_own_disk(int fd);
