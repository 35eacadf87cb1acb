// C functions and types that Swift cannot import: see docs/ARCHITECTURE.md.
//
// Every function that can fail returns -errno, which is -4095 to -1, or a result >= 0, and nothing
// else. No function leaves its result in errno.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "clinux_fs.h"
#include "clinux_thread.h"
#include "clinux_process.h"
#include "clinux_supervisor.h"
#include "clinux_volume.h"
#include "clinux_mount.h"
#include "clinux_container.h"
#include "clinux_owners.h"
#include "clinux_watch.h"
#include "clinux_openings.h"
#include "clinux_confine.h"
#include "clinux_lookups.h"
#include "clinux_log.h"
#include "clinux_fault.h"
