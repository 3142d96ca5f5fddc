#ifndef VMM_KVM_CPUID_H
#define VMM_KVM_CPUID_H

#include "base/err.h"

/*
 * The CPU that guests see. "ditto-v1" is fixed: x86-64-v2 (SSE4.2, POPCNT, CMPXCHG16B) without
 * anything that would leak host state or tie a recording to one host: no TSC, RDTSCP, RDRAND,
 * RDSEED, XSAVE/AVX, MTRR, MCE or PMU, no paravirtual leaves of KVM. Where there are several CPUs
 * they are the cores of one package, each with an APIC, which a single one lacks. Never change it:
 * a new model gets a new name.
 */
#define CPUID_SIGNATURE 0x00500f10u /* CPUID.1:EAX */

int cpuid_install_ditto_v1(int vcpu_fd, unsigned cpu_index, unsigned cpu_count, struct err *e);

#endif
