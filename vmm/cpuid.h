#ifndef VMM_CPUID_H
#define VMM_CPUID_H

#include "base/err.h"

/*
 * The CPU that guests see. "ditto-v1" is fixed: x86-64-v2 (SSE4.2, POPCNT, CMPXCHG16B) without
 * anything that would leak host state or tie a recording to one host: no TSC, RDTSCP, RDRAND,
 * RDSEED, XSAVE/AVX, APIC, MTRR, MCE or PMU, no paravirtual leaves of KVM. Never change it: a new
 * model gets a new name.
 */
int cpuid_install_ditto_v1(int vcpu_fd, unsigned cpu_index, unsigned cpu_count, struct err *e);

#endif
