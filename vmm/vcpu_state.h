#ifndef VMM_VCPU_STATE_H
#define VMM_VCPU_STATE_H

#include <linux/kvm.h>

#include "base/bytes.h"
#include "vmm/vcpu.h"

/*
 * The whole architectural state of a vCPU under the ditto-v1 model: what a recording starts from,
 * what digests cover and what a checkpoint will hold.
 */
#define VCPU_STATE_MSRS 16

struct vcpu_state {
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct kvm_fpu fpu;
    uint64_t msrs[VCPU_STATE_MSRS]; /* of msr_state_list, in its order */
};

/* Read the state of a vCPU whose last instruction is complete (see vcpu_complete()). */
int vcpu_state_get(struct vcpu *vcpu, struct vcpu_state *state, struct err *e);
int vcpu_state_set(struct vcpu *vcpu, const struct vcpu_state *state, struct err *e);

/* What INIT and STARTUP (Intel SDM vol. 3, 9.4) make of a vCPU: real mode at vector << 12. */
int vcpu_start(struct vcpu *vcpu, uint8_t vector, struct err *e);

#define VCPU_STATE_MAX_BYTES 1024u
/* Field by field, so that padding and host-specific fields do not travel; at most that many bytes.
 */
void vcpu_state_encode(struct bytes *out, const struct vcpu_state *state);
bool vcpu_state_decode(struct cursor *in, struct vcpu_state *state);

/* What there is of a segment besides base, limit and selector, in 13 bits. */
uint16_t segment_attributes(const struct kvm_segment *s);
void segment_set_attributes(struct kvm_segment *s, uint16_t bits);

/* What KVM holds of a vCPU besides: exceptions and interrupts on their way, what blocks interrupts
 * for one instruction, debug registers. Digests do not cover it. */
struct vcpu_pending {
    struct kvm_vcpu_events events;
    struct kvm_debugregs debug;
};
int vcpu_pending_get(struct vcpu *vcpu, struct vcpu_pending *pending, struct err *e);
int vcpu_pending_set(struct vcpu *vcpu, const struct vcpu_pending *pending, struct err *e);
/* Whether an exception is about to be taken. */
bool vcpu_pending_fault(const struct vcpu_pending *pending);
void vcpu_pending_encode(struct bytes *out, const struct vcpu_pending *pending);
bool vcpu_pending_decode(struct cursor *in, struct vcpu_pending *pending);

/* Of all vCPUs of a machine, each with its last instruction completed. */
int vcpus_digest(struct vm *vm, uint64_t *digest, struct err *e);
/* x87 and SSE state alone. */
uint64_t fpu_digest(const struct kvm_fpu *fpu);
uint64_t vcpu_fpu_digest(struct vcpu *vcpu);

#endif
