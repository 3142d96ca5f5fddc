#include "vmm/same_passes.h"

#include "base/now.h"
#include "mmu/walk.h"
#include "vmm/insn.h"
#include "vmm/return_site.h"
#include "vmm/stepper.h"

/* A next pass that takes longer is not waited for: a loop so slow is passed a few times only, and
 * does much in each pass that shows. A wait that was cut short by another kick says nothing, and
 * neither does one that lasted too long: others had the CPU. */
#define NEXT_PASS_NS 1000000ull
#define WAITS_MAX    8
/* How far a pass is followed: always, and in kernel code where the next pass came within that time;
 * and how many words it may write. */
#define SHORT_PASS 64
#define LONG_PASS  512
#define QUIET_PASS 4096 /* where steps are all there is: as far as a pass through schedule() */
#define PASS_WORDS 64
/* A step that was kicked is tried again so often. */
#define KICKS_MAX 8

/* Words that a pass writes, as they were before. */
struct written {
    unsigned count;
    struct memory_probe word[PASS_WORDS];
};

static void note_write(struct written *w, const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    struct memory_probe word = {.va = va};

    for (unsigned i = 0; i < w->count; i++)
        if (w->word[i].va == va)
            return;
    if (w->count < PASS_WORDS &&
        walk_read(m, cr3, va, &word.value, sizeof word.value) == sizeof word.value)
        w->word[w->count++] = word;
}

/* What the next instruction writes. The stack is in the landmark anyway. */
static void note_writes(struct written *w, struct vcpu *vcpu)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct insn insn;
    uint64_t va;

    vcpu_get_sregs(vcpu, &sregs);
    if (!insn_decode(m, sregs.cr3, vcpu->regs->rip, &insn))
        return;
    for (unsigned i = 0; i < insn.info.operand_count; i++) {
        const ZydisDecodedOperand *op = &insn.operands[i];
        if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type != ZYDIS_MEMOP_TYPE_MEM ||
            !(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) ||
            !insn_address(&insn, op, vcpu->regs, &sregs, &va))
            continue;
        const unsigned bytes = op->size / 8;
        for (unsigned at = 0; at == 0 || at < bytes; at += 8)
            note_write(w, m, sregs.cr3, va + at);
    }
}

static void keep_changed(const struct written *w, const struct guest_memory *m, uint64_t cr3,
                         struct changed_words *out)
{
    for (unsigned i = 0; i < w->count && out->count < SAME_PASSES_WORDS; i++) {
        uint64_t now;
        if (walk_read(m, cr3, w->word[i].va, &now, sizeof now) == sizeof now &&
            now != w->word[i].value)
            out->va[out->count++] = w->word[i].va;
    }
}

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

/* Step to the next pass. CLOCK_LATER: it takes too many steps, or leads through the kernel. */
static enum clock_choice follow(struct clock *c, const struct landmark *l, unsigned steps,
                                struct changed_words *words, struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    struct written written = {.count = 0};
    enum clock_choice choice = CLOCK_LATER;
    struct stepper s;

    stepper_init(&s, vcpu);
    for (unsigned i = 0; i < steps && vcpu_cpl(vcpu) == l->cpl; i++) {
        note_writes(&written, vcpu);
        choice = step(c, &s, exit, e);
        if (choice != CLOCK_CHOSEN || vcpu->regs->rip == l->regs[REGISTER_RIP])
            break;
        choice = CLOCK_LATER;
    }
    stepper_close(&s);
    if (choice == CLOCK_CHOSEN)
        keep_changed(&written, &vcpu->vm->memory, l->cr3, words);
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
        choice = return_site_run_to(vcpu, host, l->regs[REGISTER_RIP], NEXT_PASS_NS, exit, e);
        const uint64_t waited = host_now_ns() - began;
        if (choice != CLOCK_LATER || (waited >= NEXT_PASS_NS && waited < 2 * NEXT_PASS_NS))
            break;
    }
    return choice;
}

enum clock_choice same_passes_look(struct clock *c, const struct clock_host *host,
                                   const struct landmark *l, bool quietly,
                                   struct changed_words *words, struct vcpu_exit *exit,
                                   struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const bool steps_only = c->ops->steps_only;

    words->count = 0;
    const unsigned steps = quietly ? QUIET_PASS : steps_only ? LONG_PASS : SHORT_PASS;
    enum clock_choice choice = follow(c, l, steps, words, exit, e);
    /* A breakpoint in user code would leave an exception frame on the kernel's stack. */
    if (choice != CLOCK_LATER || quietly || l->cpl != 0 || vcpu_cpl(vcpu) != 0 || steps_only)
        return choice;
    choice = run_to_next(vcpu, host, l, exit, e);
    if (choice != CLOCK_CHOSEN)
        return choice;
    choice = follow(c, l, LONG_PASS, words, exit, e);
    return choice == CLOCK_LATER ? run_to_next(vcpu, host, l, exit, e) : choice;
}
