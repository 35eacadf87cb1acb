#pragma once
#include <seccomp.h>
// A macro with an argument, which Swift does not import.
static inline uint32_t cseccomp_refuse(uint16_t error) { return SCMP_ACT_ERRNO(error); }
static const uint32_t cseccomp_allow = SCMP_ACT_ALLOW;
static const uint32_t cseccomp_end_process = SCMP_ACT_KILL_PROCESS;
static const uint32_t cseccomp_arch_x86 = SCMP_ARCH_X86;
static const uint32_t cseccomp_arch_x32 = SCMP_ARCH_X32;
static const uint32_t cseccomp_arch_arm = SCMP_ARCH_ARM;
static const uint32_t cseccomp_notify = SCMP_ACT_NOTIFY;
