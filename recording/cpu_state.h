#ifndef RECORDING_CPU_STATE_H
#define RECORDING_CPU_STATE_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * The whole architectural state of a vCPU under the ditto-v1 model, and how a recording holds it:
 * what a recording starts from, what digests cover and what snapshots and checkpoints hold.
 */
#define VCPU_STATE_MSRS 16

struct vcpu_state {
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct kvm_fpu fpu;
    uint64_t msrs[VCPU_STATE_MSRS]; /* of msr_state_list, in its order */
};

/* The MSRs that make up CPU state besides EFER (which is in struct kvm_sregs). */
extern const uint32_t msr_state_list[];
extern const unsigned msr_state_count;
/* Where a state has this one of them. */
uint64_t *msr_of_state(struct vcpu_state *state, uint32_t msr);
/* FS_BASE and GS_BASE are bases of segments, too: make the MSRs what those are. */
void msrs_from_segments(struct vcpu_state *state);
/* The bits of one of them that every host keeps: KVM on AMD takes 32 bits of SYSENTER_ESP and EIP,
 * which 64-bit code cannot use there anyway, while the guest itself can write 64. */
uint64_t msr_state_mask(unsigned index);

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
/* Whether an exception is about to be taken. */
bool vcpu_pending_fault(const struct vcpu_pending *pending);
void vcpu_pending_encode(struct bytes *out, const struct vcpu_pending *pending);
bool vcpu_pending_decode(struct cursor *in, struct vcpu_pending *pending);

/* MXCSR at reset (Intel SDM vol. 1, 10.2.3). */
#define MXCSR_RESET 0x1f80u
/*
 * Of x87 and SSE state alone; as in vcpu_state_encode() without the opcode, instruction and operand
 * of the last x87 instruction, which AMD's CPUs do not keep (see docs/nondeterminism.md).
 */
uint64_t fpu_digest(const struct kvm_fpu *fpu);
/* Those three. */
void x87_last_encode(struct bytes *out, const struct kvm_fpu *fpu);
void x87_last_decode(struct cursor *in, struct kvm_fpu *fpu);

#endif
