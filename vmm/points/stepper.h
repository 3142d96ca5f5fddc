#ifndef VMM_POINTS_STEPPER_H
#define VMM_POINTS_STEPPER_H

#include "mmu/insn.h"
#include "vmm/kvm/vcpu.h"

/*
 * One instruction at a time, leaving everything as it would be without stepping.
 *
 * KVM steps by RFLAGS.TF, which has two faults: what pushes or saves the flags shows TF to the
 * guest, and an exception, interrupt or SYSCALL clears it, so that the guest would run through its
 * kernel unseen. Therefore, while a stepper is open:
 *   - the CPU uses an interrupt descriptor table of ours (in the annex), each gate of which leads
 * to a HLT of its own: the guest's handler is entered from there, with TF taken out of the frame;
 *   - SYSCALL, SYSRET and PAUSE are done in software;
 *   - behind PUSHF the pushed word is put right;
 *   - an instruction that would see or load CR3 or the IDT register is stepped with the guest's
 * own.
 *
 * Where the guest itself has TF set, its own #DB ends the step: STEP_ENTRY.
 *
 * Only a CPU in long mode can be stepped (64-bit code, and 32- and 16-bit code under such a
 * kernel): stepper_can().
 */
struct stepper {
    struct vcpu *vcpu;
    bool open, armed;
    /* Set behind stepper_init(): the guest's own IDT stays in use, because it cannot be read: what
     * needs it comes to a page fault first (mmu/ownership.h). */
    bool own_idt;
};

enum step_kind {
    STEP_DONE,  /* an instruction was executed, or one iteration of a REP */
    STEP_ENTRY, /* an exception, interrupt or INT n: the vCPU stands at its handler's first insn */
    STEP_EXIT,  /* *exit: a sync point; a PIO or MMIO instruction is not complete yet */
    STEP_KICK,  /* nothing was executed */
};

struct step {
    enum step_kind kind;
    /* What was retired: conditional branches (Jcc, LOOPcc, JRCXZ), taken or not; 0 or 1. */
    unsigned branches;
    bool repeats; /* STEP_DONE: it was an iteration of a REP (vmm/points/repeat.h), and more follow
                   */
};

void stepper_init(struct stepper *s, struct vcpu *vcpu);

/* Whether the code where the vCPU stands can be stepped. */
bool stepper_can(const struct stepper *s);

/* Get ready: a PIO or MMIO instruction that is not complete yet is completed. The first step does
 * it by itself. */
int stepper_open(struct stepper *s, struct err *e);

/* Execute one instruction. -1: KVM failed, or the code cannot be stepped. */
int stepper_step(struct stepper *s, struct step *step, struct vcpu_exit *exit, struct err *e);

/* Let the guest run freely again. To be called at a sync point before its state is read or changed;
 * on a stepper that is not open nothing happens. */
void stepper_close(struct stepper *s);

#endif
