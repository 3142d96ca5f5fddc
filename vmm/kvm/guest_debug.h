#ifndef VMM_KVM_GUEST_DEBUG_H
#define VMM_KVM_GUEST_DEBUG_H

#include <linux/kvm.h>
#include <stdbool.h>

/* The debug registers that a guest uses itself, as its own gdb or perf does. `vcpu` is KVM's file
 * descriptor. */

/* Whether a breakpoint of the guest's is enabled. */
bool guest_debug_is_on(int vcpu);

/*
 * To be called when KVM has left a vCPU that steps, with no breakpoint of ours in its debug
 * registers, for a #DB. KVM takes each #DB for the step's then: one that a breakpoint of the
 * guest's has caused is given back, and taken at the next run: true then. No interrupt can be
 * injected before.
 */
bool guest_debug_give_back(int vcpu, struct kvm_run *run);
/*
 * The same of a vCPU that does not step but has breakpoints of ours: a #DB of TF, which the guest
 * has set itself. It comes before one of ours on the next instruction, which is hit behind it,
 * though DR6 may name both.
 */
bool guest_debug_give_back_step(int vcpu, struct kvm_run *run);

#endif
