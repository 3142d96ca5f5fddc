#ifndef VMM_KVM_VCPU_H
#define VMM_KVM_VCPU_H

#include <linux/kvm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/event.h"
#include "vmm/kvm/vm.h"

/*
 * One virtual CPU, and the one place where KVM_RUN is called and its exits are told apart. What an
 * exit *means* is for the caller: the machine (recording) or the player (replay). Both see the same
 * struct vcpu_exit for the same guest instruction; that is what makes them comparable.
 */
struct vcpu_exit {
    enum exit_kind kind;
    uint64_t at;
    unsigned size, count;
    uint8_t *data; /* inside kvm_run, valid until the next vcpu_run() */
};

#define VCPU_DEBUG_REGISTERS 4u

struct vcpu {
    struct vm *vm;
    unsigned index;
    int fd;
    struct kvm_run *run;
    struct kvm_regs *regs; /* registers of the last exit, in kvm_run; change by vcpu_set_regs() */
    bool stepping;
    bool watching[VCPU_DEBUG_REGISTERS]; /* see vcpu_add_debug_register() */
    uint64_t watched[VCPU_DEBUG_REGISTERS];
    atomic_bool kicked;           /* since vcpu_run() returned last */
    bool refused;                 /* see vcpu_set_sregs() */
    bool kick_passed;             /* one came with the exit that it returned, and is over */
    bool halfway;                 /* the next exit is in kvm_run already: vcpu_is_halfway() */
    uint64_t cr3_shown, cr3_used; /* see vcpu_alias_cr3() */
    bool idt_aliased;             /* see vcpu_alias_idt() */
    struct kvm_dtable idt_shown, idt_used;
    bool owns_tsd;  /* CR4.TSD is ours (vmm/kvm/cr4.h); to be set before the state is */
    bool guest_tsd; /* what the guest believes of it then */
    /* RDTSC with a prefix is not taken for one in programs: recording/format.h, before 19. */
    bool bare_rdtsc;
    /* Whatever is behind a byte like STI's is stepped where a window opens: before 21, and where
     * memory is another CPU's. */
    bool steps_at_any_window;
    /* Digests have 0 for MXCSR: before 20. To be set before one is taken. */
    bool without_mxcsr;
};

/* Number `index` of `count`, at most MAX_VCPUS. It must not be moved, and be destroyed before vm.
 */
int vcpu_create(struct vcpu *vcpu, struct vm *vm, unsigned index, unsigned count, struct err *e);
void vcpu_destroy(struct vcpu *vcpu);

/* Run until the next exit. Returns 0, or -1 when KVM failed (exit->kind is then EXIT_FAILED). */
int vcpu_run(struct vcpu *vcpu, struct vcpu_exit *exit, struct err *e);
/* Let KVM finish a half-done PIO or MMIO instruction, without running on: after it the registers
 * are those behind the instruction. One that makes several accesses is finished up to its next one,
 * which is what vcpu_run() then returns at once. */
int vcpu_complete(struct vcpu *vcpu, struct err *e);
/* Behind vcpu_complete(): whether the instruction has another access to make. What KVM has of it
 * cannot be taken down, so that nobody can come back to here. */
bool vcpu_is_halfway(const struct vcpu *vcpu);
/* The same whatever comes of it, for who then sets the registers of before, to have the instruction
 * executed once more. What it reads from its next access on is all ones. */
int vcpu_abandon(struct vcpu *vcpu, struct err *e);
/* Make the current or next vcpu_run() return EXIT_KICK. Async-signal-safe. */
void vcpu_kick(struct vcpu *vcpu);

/* After EXIT_MMIO_WRITE to memory that vm_protect() protects: do what the instruction wants to, and
 * complete it. */
int vcpu_do_write(struct vcpu *vcpu, struct err *e);

/* After EXIT_RDTSC: the 64-bit value the guest reads. */
void vcpu_finish_rdtsc(struct vcpu *vcpu, const struct vcpu_exit *exit, uint64_t value);
/* After EXIT_RDMSR/EXIT_WRMSR: the value (reads), or fault = #GP. */
void vcpu_finish_msr(struct vcpu *vcpu, uint64_t value, bool fault);

/* Whether an interrupt may be injected at this very point. */
bool vcpu_interruptible(const struct vcpu *vcpu);
/* Whether nothing is about to happen here but the next instruction: no interrupt shadow, no event
 * about to be taken. Interrupts may be off. */
bool vcpu_is_settled(const struct vcpu *vcpu);
/* Inject an external interrupt; it is taken before the next instruction. */
void vcpu_inject(struct vcpu *vcpu, uint8_t vector);
/* Have an NMI taken before the next instruction, or as soon as the last one's handler ends. */
void vcpu_inject_nmi(struct vcpu *vcpu);
/* Bits 7:4 of the task priority, for who has a local APIC: what the guest wrote last, and what it
 * reads from now on. */
uint8_t vcpu_cr8(const struct vcpu *vcpu);
void vcpu_set_cr8(struct vcpu *vcpu, uint8_t cr8);
/* Whether an interrupt or exception is about to be taken, before the next instruction. */
bool vcpu_event_pending(const struct vcpu *vcpu);
/* The vector of an exception that is; -1: none is. */
int vcpu_exception_pending(const struct vcpu *vcpu);
/* Whether an NMI is. */
bool vcpu_nmi_pending(const struct vcpu *vcpu);
/* Ask for EXIT_WINDOW as soon as the guest can take an interrupt, or stop asking. */
void vcpu_want_window(struct vcpu *vcpu, bool want);

/* Whether KVM takes these system registers: false when the guest may not have such values. */
bool vcpu_try_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs);

/* The calls below are ioctls on a live vCPU and assert that they succeed, but for vcpu_set_sregs():
 * what a recording or a guest's descriptors say may be nothing that KVM takes. Then vcpu_run() and
 * vcpu_complete() fail from there on. */
void vcpu_set_regs(struct vcpu *vcpu, const struct kvm_regs *regs);
void vcpu_get_sregs(struct vcpu *vcpu, struct kvm_sregs *sregs);
void vcpu_set_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs);
/* For who wants the system registers after every exit: have KVM leave them in kvm_run, so that
 * vcpu_get_sregs() costs no ioctl. From the next exit on. */
void vcpu_share_sregs(struct vcpu *vcpu, bool on);
/* Forget all translations. A vCPU whose turn comes does that: what another one left in its page
 * tables meanwhile would otherwise be seen now or later, as the host's TLB happens to be. */
void vcpu_flush_tlb(struct vcpu *vcpu);
/* Let the CPU use other page tables than those the guest has loaded. From now on vcpu_get_sregs()
 * returns, and vcpu_set_sregs() takes, `shown` where the CPU has `used`. 0, 0 ends it. Flushes the
 * TLB. */
void vcpu_alias_cr3(struct vcpu *vcpu, uint64_t shown, uint64_t used);
/* The same for the interrupt descriptor table. The guest must not load another one meanwhile. NULL
 * ends it. */
void vcpu_alias_idt(struct vcpu *vcpu, const struct kvm_dtable *used);
/* Single-step from the current RIP on (set RIP first: KVM remembers the RIP of this moment). */
void vcpu_step(struct vcpu *vcpu, bool on);
/* vcpu_run() for one instruction, with TF set meanwhile (see vmm/points/stepper.h for what that
 * shows). */
int vcpu_run_step(struct vcpu *vcpu, struct vcpu_exit *exit, struct err *e);
/* Have the CPU exit, EXIT_STEP, before it executes the instruction at va, by a debug register of
 * the host's: the guest does not see it. Returns its number; one must be free. Only where doctor's
 * probes say that they work. */
unsigned vcpu_add_debug_register(struct vcpu *vcpu, uint64_t va);
void vcpu_remove_debug_register(struct vcpu *vcpu, unsigned number);
/* site_can_step() and site_hides_step() (vmm/kvm/site.h), where the vCPU stands at this
 * instruction.
 */
struct insn;
bool vcpu_can_step(struct vcpu *vcpu, const struct insn *insn);
bool vcpu_hides_step(struct vcpu *vcpu, const struct insn *insn);
/* Where TF is in flags on the guest's stack, so many bytes above its top: in their second byte,
 * whatever their size and alignment. NULL when that is not mapped. */
uint8_t *vcpu_stacked_tf(struct vcpu *vcpu, unsigned above);
/* Clear it: a step has pushed it. */
void vcpu_hide_stacked_tf(struct vcpu *vcpu, unsigned above);
/* A segment of 64-bit code, or of data, as SYSCALL loads it; the selector's RPL is its DPL. */
struct kvm_segment vcpu_flat_segment(unsigned selector, bool code);
/* The linear address of an instruction: outside 64-bit code, CS has a base. */
uint64_t linear_rip(uint64_t rip, const struct kvm_segment *cs);
/* Read guest memory at a virtual address under the vCPU's current page tables; returns how many
 * bytes could be read. */
size_t vcpu_read(struct vcpu *vcpu, uint64_t va, void *data, size_t len);
/* The sync point that an exit is, with RF masked (it depends on how the VMM got here). output: the
 * low byte of the running digest of everything the guest has put out. */
struct sync_point vcpu_sync_point(const struct vcpu *vcpu, const struct vcpu_exit *exit,
                                  uint8_t output);
/* Current privilege level of the last exit, 0 or 3. */
unsigned vcpu_cpl(struct vcpu *vcpu);

#endif
