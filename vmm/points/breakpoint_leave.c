/* Leaving the instruction where a breakpoint is: see vmm/points/breakpoint.h. */
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/repeat.h"
#include "vmm/points/stepper.h"
#include "vmm/points/watchpoint.h"

/* The plain step: much cheaper than an exact one, and as good for most instructions. */
static enum breakpoint_stop step_plainly(struct breakpoints *set, struct vcpu_exit *exit,
                                         struct err *e)
{
    bool kicked = false, again;

    do {
        set->exits++;
        if (vcpu_run_step(set->vcpu, exit, e) < 0)
            return BREAKPOINT_FAILED;
        if (exit->kind == EXIT_PROTECTED && breakpoints_rest(set, e) < 0)
            return BREAKPOINT_FAILED;
        const int written = watchpoints_do_write(set, exit, e);
        if (written < 0)
            return BREAKPOINT_FAILED;
        if (written)
            exit->kind = EXIT_STEP;
        again = exit->kind == EXIT_KICK || exit->kind == EXIT_PROTECTED;
        kicked |= exit->kind == EXIT_KICK || set->vcpu->kick_passed;
    } while (again);
    breakpoints_keep_kick(set, kicked);
    if (exit->kind != EXIT_STEP && exit->kind != EXIT_WINDOW)
        return BREAKPOINT_EXIT;
    if (watchpoints_changed(set)) /* a window comes again */
        return BREAKPOINT_HIT;
    return exit->kind == EXIT_STEP ? BREAKPOINT_NONE : BREAKPOINT_EXIT;
}

/* ---- within a REP ---- */

/* Registers that a string instruction changes. */
static bool is_repeats_own(unsigned reg)
{
    return reg == REGISTER_RCX || reg == REGISTER_RSI || reg == REGISTER_RDI;
}

static unsigned conditions_within(const struct landmark *l, struct trace_condition *out)
{
    unsigned count = 0;

    for (unsigned reg = 0; reg < REG_COUNT; reg++)
        if (!is_repeats_own(reg) && reg != REGISTER_RIP && reg != REGISTER_RFLAGS)
            out[count++] = (struct trace_condition){.reg = reg, .value = l->regs[reg]};
    return count;
}

struct breakpoint landmark_breakpoint_within(const struct landmark *l,
                                             struct trace_condition conditions[TRACE_CONDITIONS])
{
    struct breakpoint b = landmark_breakpoint(l, conditions);

    b.conditions = conditions_within(l, conditions);
    b.stops = NULL;
    b.opaque = NULL;
    b.within = l;
    return b;
}

static bool leads_within(const struct breakpoints *set, const struct breakpoint *b,
                         const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    return b->within && breakpoint_is_for(set, b, regs, sregs) &&
           regs->rcx >= b->within->regs[REGISTER_RCX] &&
           breakpoint_conditions_hold(set, b, regs, sregs);
}

bool breakpoints_lead_within(const struct breakpoints *set, const struct kvm_regs *regs,
                             const struct kvm_sregs *sregs)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (leads_within(set, b, regs, sregs))
            return true;
    return false;
}

bool breakpoints_are_within(struct breakpoints *set)
{
    const struct kvm_regs *regs = set->vcpu->regs;
    struct kvm_sregs sregs;
    bool any = false;

    vcpu_get_sregs(set->vcpu, &sregs);
    for (struct breakpoint *b = set->first; b; b = b->next) {
        b->hit = leads_within(set, b, regs, &sregs) &&
                 (b->stops ? b->stops(b, set->vcpu, regs, &sregs)
                           : fingerprint_matches(set->vcpu, regs, &sregs, b->within));
        any |= b->hit;
    }
    set->repeating |= any;
    return any;
}

uint64_t breakpoints_repeat(struct breakpoints *set, struct stepper *stepper, uint64_t most)
{
    const uint64_t done = set->repeating ? repeat_run(set->vcpu, set->watched, most) : 0;

    /* KVM keeps TF over a change of registers only where it was told to step. */
    if (done)
        stepper->armed = false;
    return done;
}

/* How many iterations it is to the next place of a breakpoint. */
static uint64_t to_place_within(const struct breakpoints *set, const struct kvm_sregs *sregs)
{
    const struct kvm_regs *regs = set->vcpu->regs;
    uint64_t least = UINT64_MAX;

    for (const struct breakpoint *b = set->first; b; b = b->next) {
        if (!leads_within(set, b, regs, sregs))
            continue;
        const uint64_t count = regs->rcx - b->within->regs[REGISTER_RCX];
        if (count && count < least)
            least = count;
    }
    return least;
}

/* Whether there is nothing to look at in the rest of a REP, and breakpoints may be in place. */
static bool may_run_on(const struct breakpoints *set, const struct kvm_sregs *sregs)
{
    const struct kvm_regs *regs = set->vcpu->regs;
    struct translation to;

    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (breakpoint_is_for(set, b, regs, sregs))
            return false;
    if (!set->watched)
        return true;
    if (!walk(&set->vcpu->vm->memory, sregs->cr3, regs->rdi, &to))
        return true;
    for (const struct watchpoint *w = set->watched; w; w = w->next)
        if (!((w->gpa ^ to.gpa) & ~(uint64_t)(PAGE_BYTES - 1)))
            return false;
    return true;
}

/*
 * By exact steps. All of a REP, as it is one pass of its breakpoints: to its end, to watched memory
 * that changes, or to a place within it.
 */
static enum breakpoint_stop step_through(struct breakpoints *set, struct stepper *stepper,
                                         struct vcpu_exit *exit, struct err *e)
{
    struct kvm_sregs sregs;
    struct step step = {.kind = STEP_DONE};
    bool kicked = false;

    do {
        vcpu_get_sregs(set->vcpu, &sregs);
        if (breakpoints_are_within(set))
            return BREAKPOINT_HIT;
        set->exits++;
        if (!breakpoints_repeat(set, stepper, to_place_within(set, &sregs))) {
            if (stepper_step(stepper, &step, exit, e) < 0)
                return BREAKPOINT_FAILED;
            kicked |= step.kind == STEP_KICK || set->vcpu->kick_passed;
            if (step.kind == STEP_KICK)
                continue;
            set->repeating = step.repeats;
        }
        if (watchpoints_changed(set))
            return BREAKPOINT_HIT;
        if (set->repeating && set->interrupted && *set->interrupted)
            return BREAKPOINT_STOPPED;
        if (set->repeating && breakpoints_are_late(set))
            return BREAKPOINT_LATE;
        if (set->repeating && may_run_on(set, &sregs))
            break;
    } while (set->repeating || step.kind == STEP_KICK);
    breakpoints_keep_kick(set, kicked);
    return step.kind == STEP_EXIT ? BREAKPOINT_EXIT : BREAKPOINT_NONE;
}

bool breakpoints_at_hook(const struct breakpoints *set)
{
    return set->hook->rip && set->vcpu->regs->rip == set->hook->rip;
}

enum breakpoint_stop breakpoints_run_to_hook(struct breakpoints *set, struct vcpu_exit *exit,
                                             struct err *e)
{
    bool kicked = false;

    do {
        set->exits++;
        if (vcpu_run(set->vcpu, exit, e) < 0)
            return BREAKPOINT_FAILED;
        kicked |= exit->kind == EXIT_KICK || set->vcpu->kick_passed;
    } while (exit->kind == EXIT_KICK);
    breakpoints_keep_kick(set, kicked);
    return BREAKPOINT_EXIT;
}

enum breakpoint_stop breakpoints_leave(struct breakpoints *set, struct vcpu_exit *exit,
                                       struct err *e)
{
    const bool began = set->repeating;
    struct vcpu *vcpu = set->vcpu;
    struct kvm_sregs sregs;
    struct stepper stepper;
    struct insn insn;

    vcpu_get_sregs(vcpu, &sregs);
    const bool known =
        insn_decode(&vcpu->vm->memory, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn);
    const bool repeats = known && sregs.cs.l && repeat_is(&insn);
    if (known && !repeats && vcpu_can_step(vcpu, &insn))
        return step_plainly(set, exit, e);
    if (began && may_run_on(set, &sregs)) {
        set->repeating = false;
        return BREAKPOINT_NONE;
    }
    if (breakpoints_rest(set, e) < 0)
        return BREAKPOINT_FAILED;
    stepper_init(&stepper, vcpu);
    enum breakpoint_stop stop = step_through(set, &stepper, exit, e);
    stepper_close(&stepper);
    if (stop == BREAKPOINT_NONE && breakpoints_at_hook(set))
        stop = breakpoints_run_to_hook(set, exit, e);
    if (stop != BREAKPOINT_HIT)
        set->repeating = false;
    return stop;
}
