#pragma once
#include <stdbool.h>
#include <stddef.h>

// The system's log. libsystemd is loaded when it is first needed (dlopen(3)): a command that logs nothing does not pay for
// it, and where it is missing the program runs all the same.

// Whether journald listens and libsystemd is there, see sd_journal_sendv(3).
bool clinux_journal_is_there(void);
// One entry of `count` fields, each `NAME=value` of `lengths[i]` bytes. 0 or -errno.
int clinux_journal_send(const char *const fields[], const size_t lengths[], int count);
// syslog(3), as `grantfs`, facility daemon. `message` is no format.
void clinux_syslog(int priority, const char *message);
// sd_notify(3): tells the service manager in whose NOTIFY_SOCKET this process was started; the variable is taken away when `last`, so that no child
// speaks for this process. 1 when it was told, 0 when there is nobody to tell, -errno.
int clinux_notify(const char *state, bool last);
