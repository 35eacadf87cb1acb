#pragma once
#include <stdbool.h>
#include <stddef.h>

// The system's log. libsystemd is loaded on first use (dlopen(3)).
//
// So commands that log nothing do not pay for it, and the program runs without it.

// Whether journald listens and libsystemd is installed, see sd_journal_sendv(3).
bool clinux_journal_is_there(void);
// One entry of `count` fields, each `NAME=value` of `lengths[i]` bytes. 0 or -errno.
int clinux_journal_send(const char *const fields[], const size_t lengths[], int count);
// syslog(3), as `grantfs`, facility daemon. `message` is not a format.
void clinux_syslog(int priority, const char *message);
// sd_notify(3) to the service manager named in NOTIFY_SOCKET.
//
// `last` unsets the variable, so that no child sends messages for this process. Returns 1 if it was
// sent, 0 without a service manager, or -errno.
int clinux_notify(const char *state, bool last);
