#ifndef VMM_KVM_SITE_H
#define VMM_KVM_SITE_H

#include "mmu/insn.h"

/*
 * Which instructions a vCPU can be stopped at and stepped over without leaving a trace in the
 * guest. A single step runs with RFLAGS.TF set, so whatever saves RFLAGS (PUSHF, SYSCALL, an
 * exception) would leak TF into guest memory.
 */
enum site_quality {
    SITE_UNSUITABLE, /* stepping it leaks, or it changes whether interrupts can be taken */
    SITE_UNCOPIED,   /* a trace does not copy it (x87): each pass costs an exit */
    SITE_MEMORY,     /* fine as long as its memory operands stay mapped */
    SITE_GOOD,       /* registers only */
    SITE_JUMP,       /* a jump to a fixed address */
};

enum site_quality site_quality(const struct guest_memory *m, const struct insn *insn,
                               const struct kvm_regs *regs, const struct kvm_sregs *sregs);

/* Whether a step over it shows TF to nobody, whatever else it does: it may exit, or change whether
 * interrupts can be taken. */
bool site_hides_step(const struct guest_memory *m, const struct insn *insn,
                     const struct kvm_regs *regs, const struct kvm_sregs *sregs);

/* Whether it can be stepped over at all: also what is no good for stopping, as PAUSE, or one
 * iteration of a string instruction. Nothing can where the guest has set TF itself: KVM takes its
 * #DB for that of the step, and its TF is gone behind it. What the x87 and SSE units have unmasked
 * is the caller's to ask: vcpu_can_step(). */
bool site_can_step(const struct guest_memory *m, const struct insn *insn,
                   const struct kvm_regs *regs, const struct kvm_sregs *sregs);

/* Whether it may raise #MF or #XM; and #NM while the kernel has not given the program the FPU yet
 * (CR0.TS), as old kernels do. Some that came with these extensions do not, and are not missed. */
bool site_uses_fpu(const struct insn *insn);
/* Whether that would be #XM. */
bool site_uses_sse(const struct insn *insn);

#endif
