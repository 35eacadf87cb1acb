// A program that pushes input into the terminal that it was given, for the next program that reads
// there: ioctl_tty(2).
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/// terminal start COMMAND...: runs the command with a terminal that belongs to no session as its
/// standard input.
static int start(char **command) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master == -1 || grantpt(master) == -1 || unlockpt(master) == -1) attack_failed("a terminal");
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (terminal == -1 || dup2(terminal, 0) == -1) attack_failed("a terminal");
    execvp(command[0], command);
    attack_failed(command[0]);
}

/// terminal push: takes the terminal for its own session, and pushes a byte into it.
static int push(void) {
    // No other session has the terminal.
    setsid();
    printf("take: %s\n", ioctl(0, TIOCSCTTY, 0) == -1 ? strerror(errno) : "done");
    printf("push: %s\n", ioctl(0, TIOCSTI, "x") == -1 ? strerror(errno) : "done");
    // The kernel ignores the upper half of a request.
    printf("long: %s\n", ioctl(0, TIOCSTI | 1UL << 32, "x") == -1 ? strerror(errno) : "done");
    // TIOCL_PASTESEL
    printf("paste: %s\n", ioctl(0, TIOCLINUX, "\3") == -1 ? strerror(errno) : "done");
    return 0;
}

int attack_terminal(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[0], "start")) return start(arguments + 1);
    if (count == 1 && !strcmp(arguments[0], "push")) return push();
    return 2;
}
