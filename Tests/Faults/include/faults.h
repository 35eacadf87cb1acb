// Faults that tests inject by variables of the environment: see clinux_fault.h.
#pragma once
