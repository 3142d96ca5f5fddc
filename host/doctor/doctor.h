#ifndef HOST_DOCTOR_DOCTOR_H
#define HOST_DOCTOR_DOCTOR_H

#include <stdbool.h>

#include "base/err.h"
#include "vmm/kvm/isolated.h"

/*
 * What this KVM can really do, found by running micro-guests (vmm/kvm/micro_guest.h) and never by
 * reading flags alone: some backends promise what they do not keep. Every probe runs isolated
 * (vmm/kvm/isolated.h).
 */
struct probe {
    const char *name;
    void (*run)(struct probe_outcome *o); /* may end the process or never return */
    bool required;                        /* without it dittovm cannot work on this KVM */
    const char *instead;                  /* what dittovm does where the result is not "ok" */
};

/* The tables end with an empty entry. */
extern const struct probe doctor_guest_probes[], doctor_debug_probes[], doctor_leak_probes[],
    doctor_host_probes[], doctor_memory_probes[];

/* A guest's SYSCALL, SYSRET and SSE work: the shortest proof that real guests run here. */
void probe_real_guest(struct probe_outcome *o);
/* A SETcc keeps its flags where its store faults by nested paging. */
void probe_setcc(struct probe_outcome *o);
/* An RCL of memory keeps them. */
void probe_rcl(struct probe_outcome *o);
/* The flags behind a CMPXCHG16B are right for whoever looks at them before the next that sets any.
 */
void probe_cmpxchg(struct probe_outcome *o);
void probe_guest_breakpoint(struct probe_outcome *o);
/* FNSTENV shows where the last x87 instruction was, also when there was an exit behind it. */
void probe_x87_pointers(struct probe_outcome *o);
/* Instructions that the guest's CPUID hides fault. */
void probe_rdtscp(struct probe_outcome *o);
void probe_rdrand(struct probe_outcome *o);
void probe_rdseed(struct probe_outcome *o);
void probe_rdpid(struct probe_outcome *o);
void probe_xbegin(struct probe_outcome *o);
/*
 * Fail with one clear line unless this machine's /dev/kvm can run real guests: a guest program goes
 * from CPL3 to CPL0 by SYSCALL, uses SSE, POPCNT and CMPXCHG16B there, and returns. Takes some
 * milliseconds; at most a second where KVM hangs.
 */
int doctor_quick_check(struct err *e);

/*
 * What this CPU does wrongly that ordinary programs meet, so that a recording made here may not
 * replay: one line, as recorder_doubt() takes it; NULL: nothing. Takes some milliseconds, the first
 * time.
 */
const char *doctor_cpu_doubt(void);

/*
 * What this CPU executes although the guest's CPUID hides it (vmm/kvm/cpuid.h): what a program gets
 * of it that does not ask CPUID first is not recorded. Names with commas between, "" for none;
 * static. Takes some milliseconds, the first time.
 */
const char *doctor_hidden_instructions(void);

#endif
