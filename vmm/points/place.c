/* See vmm/points/place.h. */
#include "vmm/points/place.h"

#include "base/now.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/repeat.h"
#include "vmm/points/run_to.h"
#include "vmm/points/written.h"

/* How far it is stepped ahead for a good instruction. */
#define STEPS_MAX 24
/* The same out of code that writes itself, which is called from code that does not. */
#define STEPS_MAX_WRITABLE 256
/* How many instructions with memory operands are passed over in the hope of one without. */
#define MEMORY_STEPS 6
/* How many that a trace does not copy. */
#define COPIED_STEPS 20
/* How many other instructions for a jump, where passes are told apart at jumps only. A loop without
 * one is so long that it has few passes. */
#define JUMP_STEPS 96
/* How long the end of an instruction that repeats itself is waited for. */
#define RUN_TO_NS 200000000ull
/* String instructions: they are interrupted between iterations, but found again only at their ends.
 */
#define REPEATED (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)

/* User code that user mode can write may have been written since the last sync point, where replay
 * sets its breakpoint: it would have to follow each write to that page (run_watching()). */
static bool is_writable_code(const struct translation *t, const struct kvm_sregs *sregs)
{
    return sregs->ss.dpl == 3 && t->writable;
}

bool place_here(struct vcpu *vcpu, const struct clock_host *host, enum site_quality least,
                struct landmark *l)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct translation t;
    struct insn insn;

    vcpu_get_sregs(vcpu, &sregs);
    if (!clock_can_stop(vcpu, host) ||
        !insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) ||
        !walk(m, sregs.cr3, insn.va, &t) || !guest_memory_at(m, t.gpa, 1) ||
        site_quality(m, &insn, vcpu->regs, &sregs) < least ||
        (is_writable_code(&t, &sregs) && host->effort < CLOCK_ANY_PLACE &&
         written_maybe(vcpu->vm, t.gpa)) ||
        !code_is_stable(&host->stable, insn.va, t.gpa, insn.bytes, insn.info.length))
        return false;
    return fingerprint_describe(vcpu, l);
}

/* Code of 32 and 16 bits is not copied (vmm/points/trace/trace.h): passes of its jumps alone can be
 * told apart inside the guest. */
static bool has_jumps_only(const struct kvm_sregs *sregs)
{
    return sregs->ss.dpl == 3 && !sregs->cs.l;
}

/* The quality that a place must have so many steps on; SITE_JUMP where jumps are waited for. */
static enum site_quality quality_wanted(unsigned steps, unsigned jump_steps)
{
    return steps < jump_steps                  ? SITE_JUMP
           : steps - jump_steps < MEMORY_STEPS ? SITE_GOOD
           : steps - jump_steps < COPIED_STEPS ? SITE_MEMORY
                                               : SITE_UNCOPIED;
}

/* CLOCK_CHOSEN: the vCPU stands one step on; CLOCK_LATER: it was kicked before. */
static enum clock_choice step(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    if (c->ops->step(c, exit, e) < 0)
        return CLOCK_FAILED;
    if (exit->kind == EXIT_KICK)
        return CLOCK_LATER;
    return exit->kind == EXIT_STEP ? CLOCK_CHOSEN : CLOCK_EXITED;
}

/*
 * Go by steps to the end of the string instruction where the vCPU stands. In user code a breakpoint
 * behind it would leave the frame of an exception on the kernel's stack. Each real step makes sure
 * of pages, to whose ends the rest is done in software, but by a clock that only steps.
 * CLOCK_LATER: the next iteration may fault, or it takes too long.
 */
static enum clock_choice finish_repeat(struct clock *c, const struct insn *insn,
                                       struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const uint64_t rip = vcpu->regs->rip, began = host_now_ns();

    while (vcpu->regs->rip == rip) {
        if (!c->ops->steps_only &&
            (host_now_ns() - began > RUN_TO_NS || !vcpu_can_step(vcpu, insn)))
            return CLOCK_LATER;
        const enum clock_choice stepped = step(c, exit, e);
        if (stepped != CLOCK_CHOSEN)
            return stepped;
        if (!c->ops->steps_only && vcpu->regs->rip == rip && !vcpu->vm->memory.readable)
            repeat_run(vcpu, NULL, UINT64_MAX);
    }
    return CLOCK_CHOSEN;
}

enum clock_choice place_near(struct clock *c, const struct clock_host *host,
                             struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const struct guest_memory *m = &vcpu->vm->memory;
    unsigned limit = STEPS_MAX, jump_steps = 0;

    for (unsigned steps = 0; steps < limit + jump_steps; steps++) {
        struct kvm_sregs sregs;
        struct translation t;
        struct insn insn;
        vcpu_get_sregs(vcpu, &sregs);
        if (!jump_steps && has_jumps_only(&sregs))
            jump_steps = JUMP_STEPS;
        if (!clock_can_stop(vcpu, host) || (sregs.ss.dpl == 3 && !host->hook->rip))
            return CLOCK_LATER;
        if (place_here(vcpu, host, quality_wanted(steps, jump_steps), landmark))
            return CLOCK_CHOSEN;
        if (!insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) ||
            !walk(m, sregs.cr3, insn.va, &t))
            return CLOCK_LATER;
        if (is_writable_code(&t, &sregs))
            limit = STEPS_MAX_WRITABLE;
        if (insn.info.attributes & REPEATED) {
            const bool by_steps = sregs.ss.dpl == 3 || c->ops->steps_only;
            if (!by_steps && host->concurrent)
                return CLOCK_LATER;
            const enum clock_choice behind =
                by_steps
                    ? finish_repeat(c, &insn, exit, e)
                    : kernel_run_to(vcpu, host, insn.va + insn.info.length, RUN_TO_NS, exit, e);
            if (behind != CLOCK_CHOSEN)
                return behind;
            continue;
        }
        /* A PAUSE is no place, but may be all that kicks ever meet in a loop of a few instructions.
         */
        if (!vcpu_can_step(vcpu, &insn))
            return CLOCK_LATER;
        const enum clock_choice stepped = step(c, exit, e);
        if (stepped != CLOCK_CHOSEN)
            return stepped;
    }
    return CLOCK_LATER;
}
