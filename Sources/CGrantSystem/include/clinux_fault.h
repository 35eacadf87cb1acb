#pragma once

// Faults and properties of older kernels that a test simulates.
enum clinux_fault {
    CLINUX_FAULT_ANSWER_SECONDS,
    CLINUX_FAULT_CRASHES,
    CLINUX_FAULT_DEATH_IN_RECOVERY,
    CLINUX_FAULT_EARLY_CONFIRMATION,
    CLINUX_FAULT_END_AT_CALLS,
    CLINUX_FAULT_FOREIGN_STATE,
    CLINUX_FAULT_KEEPER_PAUSE,
    CLINUX_FAULT_LEFTOVER_SECONDS,
    CLINUX_FAULT_NO_DIRECT_MAPS,
    CLINUX_FAULT_NO_FENCE,
    CLINUX_FAULT_NO_OPENINGS,
    CLINUX_FAULT_NO_PRUNING,
    CLINUX_FAULT_NO_RESEND,
    CLINUX_FAULT_OWN_SET_ID,
    CLINUX_FAULT_PATIENCE,
    CLINUX_FAULT_PRUNED_FROM,
    CLINUX_FAULT_READING_SECONDS,
    CLINUX_FAULT_STOPS,
    CLINUX_FAULT_TAKING_OVER,
    CLINUX_FAULT_TRAP,
};

// The setting of a fault. NULL if it is absent, as every fault is in the shipped program.
//
// The definition is weak. The program of the tests has another one (Tests/Faults).
const char *clinux_injected(enum clinux_fault fault);

// What the names of the programs with faults have in addition.
const char *clinux_program_suffix(void);
