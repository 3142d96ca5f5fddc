#ifndef VMM_KVM_VCPU_STATE_H
#define VMM_KVM_VCPU_STATE_H

#include "recording/cpu_state.h"
#include "vmm/kvm/vcpu.h"

/* A vCPU's state (recording/cpu_state.h) out of KVM and into it. */

/* Read the state of a vCPU whose last instruction is complete (see vcpu_complete()). */
int vcpu_state_get(struct vcpu *vcpu, struct vcpu_state *state, struct err *e);
int vcpu_state_set(struct vcpu *vcpu, const struct vcpu_state *state, struct err *e);
int vcpu_pending_get(struct vcpu *vcpu, struct vcpu_pending *pending, struct err *e);
int vcpu_pending_set(struct vcpu *vcpu, const struct vcpu_pending *pending, struct err *e);

/* Go on in this state, whatever the vCPU was doing: an instruction that is half done is forgotten,
 * and no interrupt window is wanted. */
int vcpu_begin_anew(struct vcpu *vcpu, const struct vcpu_state *state,
                    const struct vcpu_pending *pending, struct err *e);

/* What INIT and STARTUP (Intel SDM vol. 3, 9.4) make of a vCPU: real mode at vector << 12. */
int vcpu_start(struct vcpu *vcpu, uint8_t vector, struct err *e);

/* What FXSAVE and XSAVE store as MXCSR_MASK on this CPU (Intel SDM vol. 1, 11.6.6), for a guest as
 * for us: no KVM can give it another. AMD's CPUs have bit 17 (misaligned SSE) in it. */
uint32_t vcpu_mxcsr_mask(void);

/* Of all vCPUs of a machine, each with its last instruction completed. */
int vcpus_digest(struct vm *vm, uint64_t *digest, struct err *e);
/* fpu_digest() of its state. */
uint64_t vcpu_fpu_digest(struct vcpu *vcpu);

#endif
