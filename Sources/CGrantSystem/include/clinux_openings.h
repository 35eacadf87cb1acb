#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Permission events for open(2): fanotify(7), FAN_OPEN_PERM. A group belongs to one thread, which
// has a descriptor table of its own.

// Whether the kernel counts an open before it asks for permission (Linux 6.1).
//
// Otherwise an open could slip through between the mark and the check of the counts.
bool clinux_openings_are_counted_first(void);
// Makes a wake-up descriptor (eventfd(2)).
int clinux_openings_wakeup_open(void);
void clinux_openings_wakeup(int wakeup);
// Gives the calling thread its own descriptor table, and returns a fanotify group in it.
//
// The table contains only `wakeup`. Returns -EPERM without CAP_SYS_ADMIN.
//
// The kernel makes a descriptor for each event and denies the open if the table is full, so no
// other thread may use the table. A shared table has another risk: a killed daemon keeps it open
// while one of its threads hangs in a filesystem, and openers would wait for that.
//
// Call it before the daemon gives up the right to make such tables. Never call it from a thread
// that starts others, which would get this table.
int clinux_openings_begin(int wakeup);
// How many descriptors the table may have.
long clinux_openings_room(void);
// Makes opens of the file behind `fd` wait.
//
// `fd` is a descriptor of the process's shared table. Returns an O_PATH descriptor in the thread's
// table, for clinux_openings_unmark.
int clinux_openings_mark(int group, int fd);
void clinux_openings_unmark(int group, int path);
// Waits for a permission event or the wake-up descriptor, which it drains.
//
// `milliseconds`: -1 means forever. `looks`: whether to wait for events.
void clinux_openings_wait(int group, int wakeup, int milliseconds, bool looks);
// The next open that waits. False if there is none.
//
// Gives the opener's process ID, and a descriptor of the file for clinux_openings_allow.
bool clinux_openings_next(int group, pid_t *process, int *fd);
void clinux_openings_allow(int group, int fd);

// Whether `fd` is the only open file description of its file, mappings included.
//
// A short lease determines it (F_SETLEASE of fcntl(2)). Needs CAP_LEASE or ownership. An open in
// this moment waits, or fails with EWOULDBLOCK if it is non-blocking, unless opens of the file are
// marked.
bool clinux_is_sole_opening(int fd);
// Whether this kernel alone stores the file, not a server, another filesystem or a program.
//
// Every change of the file then needs an open that the kernel counts.
bool clinux_is_on_own_disk(int fd);
