#ifndef VMM_POINTS_FINGERPRINT_H
#define VMM_POINTS_FINGERPRINT_H

#include "recording/event.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/points/written_pages.h"

/*
 * What tells two passes of the same instruction apart: registers, x87/SSE state, the stack, the
 * memory that the code ahead works on, and what registers and stack point to. A loop whose counter
 * lives in memory only has equal registers at every pass; a loop within a loop, whose own counter
 * runs through the same values each time, has all of that equal but the last, where the outer
 * loop's progress shows. All of it is memory that nobody else changes while the vCPU runs.
 */

/* Describe the state at regs (those of the vCPU, or those in an exception frame of user code). */
void fingerprint_take(struct vcpu *vcpu, const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                      struct landmark *out);

/* The same of the point where the vCPU stands, with its code, and nothing else. False: there is no
 * instruction in guest memory. */
bool fingerprint_describe(struct vcpu *vcpu, struct landmark *out);

/* Have the landmark, which was taken here, hold these words too. Where it is full, they replace
 * what it had. */
void fingerprint_probe_also(const struct guest_memory *m, struct landmark *l, const uint64_t *va,
                            unsigned count);

/* ... and words on top of the stack, those first that are no pointers, as there is room: what a
 * function called in a loop has saved of its callers' registers. The loop's progress shows there
 * while the function's own registers take the same values in each call. */
void fingerprint_probe_stack(const struct guest_memory *m, struct landmark *l);

/* ... and by all pages that may have been written since the last sync point, if these are known. */
void fingerprint_compare_written(struct vcpu *vcpu, struct landmark *l);

/*
 * What differs first between the vCPU, with these registers, and where the landmark was taken. Not
 * the status flags: some instructions leave them undefined, and what they then are may depend on
 * how the code was run (docs/nondeterminism.md).
 */
enum fingerprint_part fingerprint_compare(struct vcpu *vcpu, const struct kvm_regs *regs,
                                          const struct kvm_sregs *sregs, const struct landmark *l,
                                          struct page_hint *hint);

/* Which of REG_COUNT registers are not as they were there, a bit each; of RFLAGS what is compared.
 */
uint32_t fingerprint_other_registers(const struct kvm_regs *regs, const struct landmark *l);

/* The frame of vmm/points/written_pages.h, for pages that are compared with the landmark's. */
uint64_t fingerprint_frame(struct vcpu *vcpu, const struct landmark *l);

/* Whether it is there. */
static inline bool fingerprint_matches(struct vcpu *vcpu, const struct kvm_regs *regs,
                                       const struct kvm_sregs *sregs, const struct landmark *l)
{
    struct page_hint nothing = {.known = false};

    return fingerprint_compare(vcpu, regs, sregs, l, &nothing) == FINGERPRINT_EQUAL;
}

/* The vCPU has come to where the landmark was taken: give it the status flags of then, too. */
void fingerprint_arrive(struct vcpu *vcpu, const struct landmark *l);
/* It stands between two instructions, where it had these flags when it was recorded. BT and its
 * kind leave OF, SF, AF and PF undefined (SDM, BT): give it those of then; the others are left as
 * they are. */
void fingerprint_undefined_flags(struct vcpu *vcpu, uint64_t rflags);

/* A small loop of code. */
struct small_loop {
    uint64_t low, high; /* linear addresses of its first and last instruction */
    uint32_t written;   /* general registers it changes, bits in the order of struct kvm_regs */
};

/* Whether the code at a linear address is a small loop that comes back to it. */
bool fingerprint_loop(struct vcpu *vcpu, uint64_t from, struct small_loop *loop);

#endif
