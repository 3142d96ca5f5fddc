#include "vmm/points/same_passes.h"

#include <string.h>

#include "base/now.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/gphook.h"
#include "vmm/points/run_to.h"
#include "vmm/points/stepper.h"

/* A next pass that takes longer is not waited for: a loop so slow is passed a few times only, and
 * does much in each pass that shows. A wait that was cut short by another kick says nothing, and
 * neither does one that lasted too long: others had the CPU. */
#define NEXT_PASS_NS 1000000ull
#define WAITS_MAX    8
/* How far a pass is followed: always, and in kernel code where the next pass came within that time.
 */
#define SHORT_PASS 64
#define LONG_PASS  512
#define QUIET_PASS 1024 /* where steps are all there is: as far as a pass through schedule() */
/* A step that was kicked is tried again so often. */
#define KICKS_MAX 8
/* All gates that there can be. */
#define IDT_BYTES (256 * GATE_BYTES)

/* One instruction, or the entry of a handler; by the clock, if it has to count it. CLOCK_CHOSEN:
 * done. */
static enum clock_choice step(struct clock *c, struct stepper *s, struct vcpu_exit *exit,
                              struct err *e)
{
    struct step step;

    for (unsigned kicks = 0; kicks < KICKS_MAX; kicks++) {
        if (c->ops->steps_only) {
            if (c->ops->step(c, exit, e) < 0)
                return CLOCK_FAILED;
            if (exit->kind != EXIT_KICK)
                return exit->kind == EXIT_STEP ? CLOCK_CHOSEN : CLOCK_EXITED;
            continue;
        }
        if (stepper_step(s, &step, exit, e) < 0)
            return CLOCK_FAILED;
        if (step.kind != STEP_KICK)
            return step.kind == STEP_EXIT ? CLOCK_EXITED : CLOCK_CHOSEN;
    }
    return CLOCK_LATER;
}

static bool same_registers(const struct kvm_regs *regs, const struct landmark *l)
{
    struct kvm_regs now = *regs;

    now.rflags &= ~RFLAGS_RF;
    return !memcmp(&now, l->regs, sizeof now);
}

/*
 * While a pass is followed, an IDT and a root page table of ours stand in for the guest's. The root
 * a vCPU gets without an exit where other vCPUs have it (mmu/ownership.h, lending). But where the
 * IDT lies on a page that they have, the CPU alone comes out at a page fault, at an interrupt or
 * exception, `int $0x80` in user code say, where the stepper would go on into the handler, or, with
 * gates that it cannot read, end in a triple fault. So then the guest's own is left to it.
 */
enum idt { IDT_READABLE, IDT_HIDDEN, IDT_UNKNOWN };

static enum idt look_at_idt(struct vcpu *vcpu)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    unsigned readable = 0;
    struct kvm_sregs sregs;
    struct translation t;

    if (!m->readable)
        return IDT_READABLE;
    vcpu_get_sregs(vcpu, &sregs);
    const uint64_t last = sregs.idt.limit < IDT_BYTES ? sregs.idt.limit : IDT_BYTES - 1;
    /* It may end with the address space. */
    const uint64_t pages = ((sregs.idt.base & (PAGE_BYTES - 1)) + last) / PAGE_BYTES + 1;
    for (uint64_t i = 0; i < pages; i++) {
        if (!walk(m, sregs.cr3, sregs.idt.base + i * PAGE_BYTES, &t) ||
            !guest_memory_any(m, t.gpa, 1))
            return IDT_UNKNOWN;
        readable += guest_memory_at(m, t.gpa, 1) != NULL;
    }
    return readable == pages ? IDT_READABLE : readable ? IDT_UNKNOWN : IDT_HIDDEN;
}

/* Step to the next pass. CLOCK_LATER: it takes too many steps, or leads through the kernel. */
static enum clock_choice follow(struct clock *c, const struct landmark *l, enum idt idt,
                                unsigned steps, struct loop_pass *pass, struct vcpu_exit *exit,
                                struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    enum clock_choice choice = CLOCK_LATER;
    struct stepper s;

    written_look(vcpu);
    stepper_init(&s, vcpu);
    s.own_idt = idt == IDT_HIDDEN;
    for (unsigned i = 0; i < steps && vcpu_cpl(vcpu) == l->cpl; i++) {
        choice = step(c, &s, exit, e);
        if (choice != CLOCK_CHOSEN || vcpu->regs->rip == l->regs[REGISTER_RIP])
            break;
        choice = CLOCK_LATER;
    }
    stepper_close(&s);
    if (choice == CLOCK_CHOSEN) {
        pass->changed = written_changed(vcpu->vm, l->cr3, l->cpl, pass->changed_va);
        pass->waits = same_registers(vcpu->regs, l) && written_is_as_it_was(vcpu->vm);
    }
    return choice;
}

/* Let kernel code run to the next pass. */
static enum clock_choice run_to_next(struct vcpu *vcpu, const struct clock_host *host,
                                     const struct landmark *l, struct vcpu_exit *exit,
                                     struct err *e)
{
    enum clock_choice choice = CLOCK_LATER;

    for (unsigned i = 0; i < WAITS_MAX; i++) {
        const uint64_t began = host_now_ns();
        choice = kernel_run_to(vcpu, host, l->regs[REGISTER_RIP], NEXT_PASS_NS, exit, e);
        const uint64_t waited = host_now_ns() - began;
        if (choice != CLOCK_LATER || (waited >= NEXT_PASS_NS && waited < 2 * NEXT_PASS_NS))
            break;
    }
    return choice;
}

/* A guest that steps itself leaves for its kernel at each step. */
static bool can_be_followed(const struct clock *c)
{
    struct stepper s;

    stepper_init(&s, c->vcpu);
    return !(c->vcpu->regs->rflags & RFLAGS_TF) && (c->ops->steps_only || stepper_can(&s));
}

enum clock_choice same_passes_look(struct clock *c, const struct clock_host *host,
                                   const struct landmark *l, bool by_steps, struct loop_pass *pass,
                                   struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const bool steps_only = c->ops->steps_only;
    const bool brief =
        host->concurrent && host->reason == CLOCK_IF_WAITING; /* it is looked often */
    const unsigned steps = brief        ? SHORT_PASS
                           : by_steps   ? QUIET_PASS
                           : steps_only ? LONG_PASS
                                        : SHORT_PASS;

    *pass = (struct loop_pass){.waits = false};
    if (!can_be_followed(c))
        return CLOCK_LATER;
    const enum idt idt = look_at_idt(vcpu);
    if (idt == IDT_UNKNOWN)
        return CLOCK_LATER;
    enum clock_choice choice = follow(c, l, idt, steps, pass, exit, e);
    /* A breakpoint in user code would leave an exception frame on the kernel's stack. */
    if (choice != CLOCK_LATER || by_steps || l->cpl != 0 || vcpu_cpl(vcpu) != 0 || steps_only)
        return choice;
    choice = run_to_next(vcpu, host, l, exit, e);
    if (choice != CLOCK_CHOSEN)
        return choice;
    choice = follow(c, l, idt, LONG_PASS, pass, exit, e);
    return choice == CLOCK_LATER ? run_to_next(vcpu, host, l, exit, e) : choice;
}
