// in-exec FILE [HELD]: waits for a line, then runs another program. execve(2) closes FILE. While FILE's filesystem does
// not reply, the kernel lets no process inspect this one. HELD is open meanwhile, and stays open in the other program.
#include "attacker.h"
#include <fcntl.h>
#include <unistd.h>

int attack_in_exec(int count, char **arguments) {
    if (count < 1) return 2;
    int held = count > 1 ? open(arguments[1], O_RDONLY) : 0;
    int closed = open(arguments[0], O_RDWR | O_CLOEXEC);
    if (held == -1 || closed == -1 || write(closed, "x", 1) != 1) attack_failed(arguments[0]);
    attack_ready();
    if (!attack_wait()) return 0;
    execl("/bin/sleep", "sleep", "1000", NULL);
    attack_failed("execl");
}
