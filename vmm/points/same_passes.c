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

/* So many words of a pass are followed. */
#define PASS_WORDS 256

/* Words that a pass reads or writes, in ascending order, as they were before. */
struct touched {
    unsigned count;
    bool incomplete; /* there were others, too */
    struct memory_probe word[PASS_WORDS];
};

static void note_word(struct touched *t, const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    struct memory_probe word = {.va = va};
    unsigned at = t->count;

    while (at && t->word[at - 1].va > va)
        at--;
    if (at && t->word[at - 1].va == va)
        return;
    if (t->count == PASS_WORDS ||
        walk_read(m, cr3, va, &word.value, sizeof word.value) != sizeof word.value) {
        t->incomplete = true;
        return;
    }
    memmove(&t->word[at + 1], &t->word[at], (t->count - at) * sizeof word);
    t->word[at] = word;
    t->count++;
}

/* What the next instruction reads or writes. */
static void note_words(struct touched *t, struct vcpu *vcpu)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct insn insn;
    uint64_t va;

    vcpu_get_sregs(vcpu, &sregs);
    if (!insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn)) {
        t->incomplete = true;
        return;
    }
    for (unsigned i = 0; i < insn.info.operand_count && !insn_touches_nothing(&insn); i++) {
        const ZydisDecodedOperand *op = &insn.operands[i];
        if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type != ZYDIS_MEMOP_TYPE_MEM)
            continue;
        if (!insn_address(&insn, op, vcpu->regs, &sregs, &va)) {
            t->incomplete = true;
            continue;
        }
        const uint64_t bytes = op->size / 8 ? op->size / 8 : 1;
        if (insn_pushes(op))
            va -= bytes;
        for (uint64_t at = va & ~7ull; at - (va & ~7ull) < (va & 7) + bytes; at += 8)
            note_word(t, m, sregs.cr3, at);
    }
}

static void describe(const struct touched *t, const struct guest_memory *m, uint64_t cr3,
                     struct loop_pass *out)
{
    bool waits = !t->incomplete;

    for (unsigned i = 0; i < t->count; i++) {
        uint64_t now;
        if (walk_read(m, cr3, t->word[i].va, &now, sizeof now) != sizeof now ||
            now != t->word[i].value) {
            waits = false;
            if (out->changed < LANDMARK_PROBES)
                out->changed_va[out->changed++] = t->word[i].va;
        }
    }
    out->waits = waits;
}

/* One instruction, or the entry of a handler; by the clock, if it has to count it (the words of an
 * entry are not noticed then). CLOCK_CHOSEN: done. */
static enum clock_choice step(struct clock *c, struct stepper *s, struct touched *t,
                              struct vcpu_exit *exit, struct err *e)
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
        t->incomplete |=
            step.kind == STEP_ENTRY; /* the CPU has read and written words of its own */
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
    struct touched touched = {.count = 0};
    enum clock_choice choice = CLOCK_LATER;
    struct stepper s;

    stepper_init(&s, vcpu);
    s.own_idt = idt == IDT_HIDDEN;
    for (unsigned i = 0; i < steps && vcpu_cpl(vcpu) == l->cpl; i++) {
        note_words(&touched, vcpu);
        choice = step(c, &s, &touched, exit, e);
        if (choice != CLOCK_CHOSEN || vcpu->regs->rip == l->regs[REGISTER_RIP])
            break;
        choice = CLOCK_LATER;
    }
    stepper_close(&s);
    if (choice == CLOCK_CHOSEN) {
        describe(&touched, &vcpu->vm->memory, l->cr3, pass);
        pass->waits &= same_registers(vcpu->regs, l);
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
