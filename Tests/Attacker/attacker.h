// A program that attacks the machinery of a mount instead of its files: it holds, uses up and swaps what it can as whoever runs it.
#ifndef ATTACKER_H
#define ATTACKER_H
#include <stdbool.h>

/// One attack. `arguments` ends with NULL. It prints "ready" on a line of its own when it holds what it is to hold, and what it found after
/// that, and goes on until standard input ends. Returns the exit status.
typedef int attack(int count, char **arguments);

/// Prints why the attack cannot be made, with errno, and ends the program.
_Noreturn void attack_failed(const char *what);
/// Prints "ready".
void attack_ready(void);
/// Waits until standard input ends, or a line comes. Returns 1 for a line, 0 at the end.
int attack_wait(void);

// One line for each attack, in the order of their names.
attack attack_flight;
attack attack_outlive;

#endif
