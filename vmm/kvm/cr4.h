#ifndef VMM_KVM_CR4_H
#define VMM_KVM_CR4_H

#include "base/x86.h"
#include "vmm/kvm/vcpu.h"

/*
 * CR4.TSD is ours: while it is set, RDTSC at CPL3 raises #GP (Intel SDM vol. 3, 2.5), which comes
 * to the #GP hook. What the guest believes of it is another thing: Linux sets and clears it at
 * every switch to a process that asked for SIGSEGV (prctl(PR_SET_TSC), strict seccomp).
 *
 * So each access of the guest's to CR4 is replaced when its code is loaded (boot/code_sites.h), by
 *
 *     REX.r  E7 port      out %eax,$port
 *
 * where r, 0 to 15, is the number of the register that the MOV had; the prefix does nothing.
 * vcpu_get_sregs() and vcpu_set_sregs() show and take what the guest believes.
 */

/* Whether this EXIT_PIO_OUT is such an access; then *exit is made EXIT_CR4_READ or EXIT_CR4_WRITE,
 * with the register's number in size. */
bool cr4_exit(struct vcpu *vcpu, struct vcpu_exit *exit);

/* Do what the instruction that was replaced does, and complete it. A value that this CPU refuses
 * raises #GP (Intel SDM vol. 2, MOV CRn): vcpu_event_pending() then. */
void cr4_finish(struct vcpu *vcpu, const struct vcpu_exit *exit);

/* Whether the CPU itself has TSD clear, though it is ours. */
bool cr4_tsd_is_lost(struct vcpu *vcpu);

#endif
