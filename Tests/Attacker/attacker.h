// A program that attacks the machinery of a mount instead of its files. It holds, uses up and
// exchanges resources with the rights of its user.
#ifndef ATTACKER_H
#define ATTACKER_H
#include <stdbool.h>

/// One attack. `arguments` ends with NULL. The attack prints "ready" on a line when it holds its resources, and its
/// findings after that. It goes on until standard input ends. Returns the exit status.
typedef int attack(int count, char **arguments);

/// Prints why the attack cannot be made, with errno, and ends the program.
_Noreturn void attack_failed(const char *what);
/// Prints "ready".
void attack_ready(void);
/// Waits until standard input ends, or a line comes. Returns 1 for a line, 0 at the end.
int attack_wait(void);
/// Raises the limit of descriptors to the maximum of the user.
void attack_raise_limits(void);

// One line for each attack, in the order of their names.
attack attack_copy;
attack attack_held_listing;
attack attack_late;
attack attack_mapping;
attack attack_pinned;
attack attack_read_on;
attack attack_threads;
attack attack_numbers;
attack attack_keys;
attack attack_shared;
attack attack_snapshot;
attack attack_sweep;
attack attack_terminal;
attack attack_callers;
attack attack_hold_files;
attack attack_leases;
attack attack_lock_bystander;
attack attack_lock_chain;
attack attack_lock_many;
attack attack_lock_pieces;
attack attack_stay;
attack attack_flight;
attack attack_outlive;
attack attack_in_exec;
attack attack_trace_init;

#endif
