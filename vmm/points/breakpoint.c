/* Running to breakpoints: see vmm/points/breakpoint.h. */
#include "vmm/points/breakpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/now.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/annex.h"
#include "vmm/points/repeat.h"
#include "vmm/points/stepper.h"
#include "vmm/points/watchpoint.h"

/* A HLT is hit at each pass; a register is not where an IRET with RF set leads, nor behind a load
 * of SS (Intel SDM vol. 3, "Instruction-Breakpoint Exception Condition"). */
static const struct breakpoint_means *const means_table[] = {
    &breakpoint_hlt,
    &breakpoint_register,
    &breakpoint_step,
};

void breakpoints_probe(struct vm *vm)
{
    for (unsigned i = 0; i < sizeof means_table / sizeof *means_table; i++)
        for (unsigned cpl = 0; cpl <= 3; cpl += 3)
            means_table[i]->works(vm, cpl);
}

void breakpoints_init(struct breakpoints *set, struct vcpu *vcpu, const struct gp_hook *hook)
{
    *set = (struct breakpoints){.vcpu = vcpu, .hook = hook};
}

int breakpoints_add(struct breakpoints *set, struct breakpoint *b, struct err *e)
{
    assert(!b->means && b->conditions <= TRACE_CONDITIONS);
    if (b->entry_of) {
        b->means = &breakpoint_entry;
        b->at = guest_memory_at(&set->vcpu->vm->memory, b->entry_of->entries_gpa, sizeof(uint64_t));
        assert(b->at);
    }
    for (unsigned i = 0; i < sizeof means_table / sizeof *means_table && !b->means; i++) {
        const struct breakpoint_means *means = means_table[i];
        if ((!set->only || set->only == means) && means->works(set->vcpu->vm, b->cpl) &&
            means->has_room(set, b))
            b->means = means;
    }
    if (!b->means)
        return err_set(e, STATUS_ERROR, "no breakpoint can be set at %#llx",
                       (unsigned long long)b->va);
    if (b->conditions || b->countdown)
        b->filter = breakpoint_filter_new(set->vcpu);
    b->next = set->first;
    set->first = b;
    return 0;
}

void breakpoints_remove(struct breakpoints *set, struct breakpoint *b)
{
    for (struct breakpoint **at = &set->first; *at; at = &(*at)->next) {
        if (*at != b)
            continue;
        *at = b->next;
        break;
    }
    assert(!b->armed && set->traced != b);
    free(b->filter);
    b->filter = NULL;
    b->means = NULL;
}

/* ---- around a run of the vCPU ---- */

/* A HLT there would be an exception of the guest's, which only the hook shows to us. */
static bool user_may_execute(const struct breakpoints *set, const struct breakpoint *b)
{
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(set->vcpu, &sregs);
    return walk(&set->vcpu->vm->memory, b->cr3 ? b->cr3 : sregs.cr3, b->va, &t) && t.user;
}

static bool hlt_must_wait(const struct breakpoints *set, const struct breakpoint *b)
{
    return b->patient && !set->hook->rip &&
           (b->cpl == 3 || b->va >> 63 || (b->any_cpl && user_may_execute(set, b)));
}

int64_t breakpoint_entries_ahead(const struct breakpoints *set, const struct breakpoint *b)
{
    return entries_between(&set->vcpu->vm->memory, b->entry_of) + b->entries_later;
}

/* The count that it waits for has been come to. */
static bool has_entered(const struct breakpoints *set, const struct breakpoint *b)
{
    return breakpoint_entries_ahead(set, b) <= 0;
}

/* Whether it would be a byte in a word by which entries are counted meanwhile. */
static bool is_in_alarm(const struct breakpoints *set, const struct breakpoint *b)
{
    for (const struct breakpoint *other = set->first; other; other = other->next)
        if (b->means == &breakpoint_hlt && other->entry_of &&
            b->gpa - other->entry_of->entries_gpa < sizeof *other->alarm.word)
            return true;
    return false;
}

/* Kernel code may not be mapped where the vCPU is now (a kernel that has user page tables). */
static bool takes_register(const struct breakpoints *set, const struct breakpoint *b)
{
    return (hlt_must_wait(set, b) || (!b->at && b->va >> 63)) &&
           breakpoint_register.works(set->vcpu->vm, b->cpl) && breakpoint_register.has_room(set, b);
}

/* A register as long as a HLT must wait; none is set beside a trace, which would go past it. */
static void take_register_or_hlt(const struct breakpoints *set, struct breakpoint *b, bool traced)
{
    const bool had = b->means == &breakpoint_register;

    if (set->only || (b->means != &breakpoint_hlt && !had))
        return;
    b->means = &breakpoint_hlt;
    if ((had || !traced) && takes_register(set, b))
        b->means = &breakpoint_register;
}

/* Not `except`, whose trace is about to begin. */
static void arm(struct breakpoints *set, const struct breakpoint *except)
{
    for (struct breakpoint *b = set->first; b; b = b->next) {
        if (b->armed)
            continue;
        if (!b->at || b->found)
            breakpoint_find_code(set, b);
        take_register_or_hlt(set, b, except || trace_is_in_place(set->vcpu->vm));
        if (b->means == &breakpoint_hlt && (!b->at || hlt_must_wait(set, b)))
            continue;
        if ((except && (b == except || (b->gpa && b->gpa == except->gpa))) || is_in_alarm(set, b) ||
            (b->entry_of && has_entered(set, b))) /* it is hit, and was looked at */
            continue;
        b->means->arm(set, b);
        b->armed = true;
        b->armed_before = set->armed;
        set->armed = b;
    }
}

/* The last one first: each has remembered the code as it found it, others close by included. */
static void disarm(struct breakpoints *set)
{
    for (; set->armed; set->armed = set->armed->armed_before) {
        set->armed->means->disarm(set, set->armed);
        set->armed->armed = false;
    }
}

static void stop_trace(struct breakpoints *set)
{
    trace_stop(set->vcpu);
    set->traced = NULL;
}

/* ---- hits ---- */

/* Bring the vCPU itself to the place, as if no breakpoint had ever been there. */
static void stand_at(struct breakpoints *set, const struct kvm_regs *regs,
                     const struct kvm_sregs *sregs)
{
    stop_trace(set);
    if (sregs->ss.dpl == 3)
        vcpu_set_sregs(set->vcpu, sregs);
    vcpu_set_regs(set->vcpu, regs);
}

/* The breakpoint an exit is due to, and the state of the code there. Its instruction may be
 * mapped at another address here, or be that of another process: see
 * breakpoint_is_for(). */
static struct breakpoint *find_hit(struct breakpoints *set, const struct vcpu_exit *exit,
                                   struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    for (struct breakpoint *b = set->first; b; b = b->next)
        if (b->armed && b->means->is_hit(set, b, exit, regs, sregs))
            return b;
    return NULL;
}

bool breakpoint_is_for(const struct breakpoints *set, const struct breakpoint *b,
                       const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    if (b->entry_of)
        return has_entered(set, b);
    return b->va == linear_rip(regs->rip, &sregs->cs) && (!b->cr3 || b->cr3 == sregs->cr3) &&
           (b->any_cpl || b->cpl == sregs->ss.dpl);
}

/* What is at a place where the vCPU is. */
struct looked {
    unsigned stops;             /* how many stop */
    struct breakpoint *one;     /* the only one that does not, NULL: none, or several */
    struct breakpoint *counted; /* the only one that counts, which may be another one */
};

static bool only_counts(const struct breakpoint *b)
{
    return b->countdown && !b->conditions && !b->stops && !b->within;
}

/* Whether a breakpoint stops at this pass. */
static bool stops_here(const struct breakpoints *set, struct breakpoint *b,
                       const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    const bool stops = b->within        ? false
                       : b->stops       ? b->stops(b, set->vcpu, regs, sregs)
                       : only_counts(b) ? false
                                        : breakpoint_conditions_hold(set, b, regs, sregs);

    b->passes++;
    return (b->countdown && --b->countdown == 0) || stops;
}

/* Let all that are there look at the pass. A trace has the comparison of one, and one count. */
static struct looked look(struct breakpoints *set, const struct kvm_regs *regs,
                          const struct kvm_sregs *sregs)
{
    struct looked l = {0};
    unsigned comparing = 0, counting = 0;

    for (struct breakpoint *b = set->first; b; b = b->next) {
        b->hit = breakpoint_is_for(set, b, regs, sregs) && stops_here(set, b, regs, sregs);
        l.stops += b->hit;
        if (b->hit || !breakpoint_is_for(set, b, regs, sregs))
            continue;
        if (b->countdown) {
            counting++;
            l.counted = b;
        }
        if (!only_counts(b)) {
            comparing++;
            l.one = b;
        }
    }
    if (!comparing)
        l.one = l.counted;
    if (comparing > 1 || counting > 1)
        l.one = NULL;
    return l;
}

unsigned breakpoints_look(struct breakpoints *set, const struct kvm_regs *regs,
                          const struct kvm_sregs *sregs)
{
    if (!set->repeating)
        return look(set, regs, sregs).stops;
    for (struct breakpoint *b = set->first; b; b = b->next)
        b->hit = false;
    return 0;
}

bool breakpoints_watch_hit(const struct breakpoints *set)
{
    for (const struct watchpoint *w = set->watched; w; w = w->next)
        if (w->hit)
            return true;
    return false;
}

bool breakpoints_hit(const struct breakpoints *set)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (b->hit)
            return true;
    return breakpoints_watch_hit(set);
}

/* Who has a timer kick the vCPU does so once. A kick that comes with an exit of ours, or in a step,
 * is for the run behind it. */
void breakpoints_keep_kick(struct breakpoints *set, bool kicked)
{
    if (kicked)
        vcpu_kick(set->vcpu);
}

/* A trace goes past the address that a register has. */
static bool others_take_registers(const struct breakpoints *set, const struct breakpoint *one)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (b != one && b->means == &breakpoint_register)
            return true;
    return false;
}

/* The vCPU is at a breakpoint, or its trace came to where all conditions are true. */
static enum breakpoint_stop pass(struct breakpoints *set, const struct kvm_regs *regs,
                                 const struct kvm_sregs *sregs, struct vcpu_exit *exit,
                                 struct err *e)
{
    const struct looked l = look(set, regs, sregs);

    if (l.stops) {
        stand_at(set, regs, sregs);
        return BREAKPOINT_HIT;
    }
    const bool within = breakpoints_lead_within(set, regs, sregs);
    if (set->traced && (set->traced != l.one || within))
        stop_trace(set);
    if (l.one && l.one->filter && !within && !others_take_registers(set, l.one)) {
        set->counted = l.counted;
        arm(set, l.one); /* the trace has to leave for the others' HLTs; this one it replaces */
        if (breakpoint_filter_start(set, l.one, regs, sregs)) {
            set->traced = l.one;
            return BREAKPOINT_NONE;
        }
        disarm(set);
    }
    stand_at(set, regs, sregs);
    return breakpoints_leave(set, exit, e);
}

/* ---- running ---- */

static bool is_stepped(const struct breakpoints *set)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (b->means == &breakpoint_step)
            return true;
    return false;
}

bool breakpoints_are_late(const struct breakpoints *set)
{
    return set->give_up_ns && host_now_ns() >= set->give_up_ns;
}

/* By single steps, looking at all breakpoints before each. */
static enum breakpoint_stop run_stepped(struct breakpoints *set, struct vcpu_exit *exit,
                                        struct err *e)
{
    struct stepper stepper;
    struct step step;
    struct kvm_sregs sregs;
    enum breakpoint_stop stop = BREAKPOINT_EXIT;

    if (breakpoints_rest(set, e) < 0)
        return BREAKPOINT_FAILED;
    stepper_init(&stepper, set->vcpu);
    if (stepper_open(&stepper, e) < 0)
        return BREAKPOINT_FAILED;
    do {
        vcpu_get_sregs(set->vcpu, &sregs);
        if (!vcpu_event_pending(set->vcpu) &&
            (breakpoints_are_within(set) || breakpoints_look(set, set->vcpu->regs, &sregs))) {
            stop = BREAKPOINT_HIT;
            break;
        }
        set->exits++;
        if (stepper_step(&stepper, &step, exit, e) < 0) {
            stop = BREAKPOINT_FAILED;
            break;
        }
        set->repeating = step.repeats;
        if (watchpoints_changed(set))
            stop = BREAKPOINT_HIT;
        else if (step.kind == STEP_KICK && (!set->interrupted || *set->interrupted))
            stop = BREAKPOINT_STOPPED;
        else if (step.kind == STEP_KICK && breakpoints_are_late(set))
            stop = BREAKPOINT_LATE;
        else if (step.kind == STEP_ENTRY)
            breakpoints_keep_kick(set, set->vcpu->kick_passed);
    } while (stop == BREAKPOINT_EXIT && step.kind != STEP_EXIT);
    stepper_close(&stepper);
    return stop;
}

enum armed_stop {
    ARMED_FAILED = -1,
    ARMED_EXIT,
    ARMED_WATCHED,   /* watched memory has changed */
    ARMED_PROTECTED, /* its page is about to be written */
    ARMED_REPEATING, /* its page was written to by a REP, which is to be gone through */
};

/* A write that was followed may have gone over a HLT of ours. */
static void arm_again(struct breakpoints *set)
{
    for (struct breakpoint *b = set->armed; b; b = b->armed_before)
        if (b->means == &breakpoint_hlt && *b->at != HLT)
            b->means->arm(set, b);
}

static int step_of_vcpu(void *vcpu, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run_step(vcpu, exit, e);
}

/* The vCPU was kicked, and where an alarm is about to exit, it does so first. */
static int finish_entry(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    for (struct breakpoint *b = set->armed; b && exit->kind == EXIT_KICK; b = b->armed_before) {
        if (b->entry_of &&
            entry_alarm_reach(&b->alarm, set->vcpu, step_of_vcpu, set->vcpu, exit, e) < 0)
            return -1;
        breakpoints_keep_kick(set, exit->kind != EXIT_KICK);
    }
    return 0;
}

/* Whether the exception that is to be taken has us come out at its handler: in a trace all do, and
 * elsewhere a #GP of user code, which a HLT of ours raises, too. */
static bool comes_to_us(const struct breakpoints *set)
{
    const int vector = vcpu_exception_pending(set->vcpu);

    return (vector == VECTOR_GP && set->hook->rip) ||
           (vector >= 0 && trace_is_in_place(set->vcpu->vm));
}

/* vcpu_run(). The page that is protected may be that of an exception's frame. */
static int run_to_exit(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    set->exits++;
    if (vcpu_run(set->vcpu, exit, e) < 0)
        return -1;
    if (exit->kind != EXIT_PROTECTED)
        return 0;
    breakpoints_keep_kick(set, set->vcpu->kick_passed);
    if (!comes_to_us(set))
        return 0;
    if (breakpoints_rest(set, e) < 0)
        return -1;
    set->exits++;
    return vcpu_run(set->vcpu, exit, e);
}

/* Not where a kick came on the guest's way into its kernel: it is nowhere yet, and comes to us. */
static bool has_spent_exits(const struct breakpoints *set)
{
    return set->most_exits && set->exits >= set->most_exits &&
           !(trace_is_in_place(set->vcpu->vm) &&
             annex_is_entered(annex_of(set->vcpu->vm), set->vcpu));
}

/* vcpu_run(), and what it takes for watched memory. */
static enum armed_stop run_watched(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    for (;;) {
        if (watchpoints_protect(set, e) < 0 || run_to_exit(set, exit, e) < 0)
            return ARMED_FAILED;
        const bool stored = exit->kind == EXIT_PROTECTED && watchpoints_store(set);
        if (exit->kind == EXIT_PROTECTED && !stored)
            return ARMED_PROTECTED;
        const int written = stored ? 1 : watchpoints_do_write(set, exit, e);
        if (written < 0)
            return ARMED_FAILED;
        if (!written)
            return finish_entry(set, exit, e) < 0 ? ARMED_FAILED : ARMED_EXIT;
        arm_again(set);
        if (watchpoints_changed(set)) {
            if (breakpoints_rest(set, e) < 0 || trace_leave(set->vcpu, e) < 0)
                return ARMED_FAILED;
            set->repeating = repeat_has_written(set->vcpu, exit->at);
            return ARMED_WATCHED;
        }
        set->repeating = repeat_has_written(set->vcpu, exit->at);
        if (set->repeating)
            return ARMED_REPEATING;
        if ((set->interrupted && *set->interrupted) || has_spent_exits(set)) {
            exit->kind = EXIT_KICK;
            return ARMED_EXIT;
        }
    }
}

/* Whether an exit had the trace taken away that was in place. */
static bool left_trace(const struct breakpoints *set, bool was_in_place)
{
    return set->traced && was_in_place && !trace_is_in_place(set->vcpu->vm);
}

/* Until something is to be looked at: a breakpoint *at, or an exit (*at NULL). */
static enum armed_stop run_armed(struct breakpoints *set, struct breakpoint **at,
                                 struct kvm_regs *regs, struct kvm_sregs *sregs,
                                 struct vcpu_exit *exit, struct err *e)
{
    enum trace_verdict verdict;
    bool traced;

    *at = NULL;
    do {
        enum armed_stop stop = run_watched(set, exit, e);
        if (stop != ARMED_EXIT)
            return stop;
        const bool kicked = set->vcpu->kick_passed;
        traced = trace_is_in_place(set->vcpu->vm);
        if (exit->kind == EXIT_WINDOW && traced && breakpoints_rest(set, e) < 0)
            return ARMED_FAILED; /* it is stepped out of */
        verdict = trace_exit(set->vcpu, exit, breakpoint_filter_may_extend(set), regs, sregs, e);
        if (verdict == TRACE_FAILED)
            return ARMED_FAILED;
        if (verdict == TRACE_RUN_ON) {
            breakpoints_keep_kick(set, kicked);
            if (left_trace(set, traced) && set->vcpu->regs->rip == set->traced->va)
                breakpoint_filter_pause(set);
        }
    } while (verdict == TRACE_RUN_ON);
    *at = verdict == TRACE_TRUE ? set->traced : find_hit(set, exit, regs, sregs);
    if (*at)
        breakpoints_keep_kick(set, set->vcpu->kick_passed);
    if (verdict == TRACE_TRUE && set->counted)
        set->counted->countdown++; /* look() counts it again */
    if (verdict == TRACE_OTHER && *at && *at == set->traced &&
        left_trace(set, traced)) /* a #GP of the guest's own there */
        breakpoint_filter_pause(set);
    /* What ran outside the trace may have changed kernel code. */
    if (verdict == TRACE_OTHER && *at && (*at)->cpl == 0)
        stop_trace(set);
    return ARMED_EXIT;
}

/* The count may have come to it while breakpoints were not in place: in a step. While one is, the
 * word holds something else. */
static bool look_at_entries(struct breakpoints *set)
{
    bool any = false;

    for (struct breakpoint *b = set->first; b; b = b->next)
        if (b->entry_of && !b->armed && has_entered(set, b))
            any = b->hit = true;
    return any;
}

/* One that was in place until now. */
static bool has_breakpoint(const struct breakpoints *set, const struct kvm_regs *regs,
                           const struct kvm_sregs *sregs)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (breakpoint_is_for(set, b, regs, sregs) &&
            (b->means != &breakpoint_hlt || (b->at && !hlt_must_wait(set, b))))
            return true;
    return false;
}

/* A page of watched memory is about to be written, perhaps by code in a trace. */
static enum breakpoint_stop let_write(struct breakpoints *set, struct vcpu_exit *exit,
                                      struct err *e)
{
    const bool traced = trace_is_in_place(set->vcpu->vm);
    struct kvm_sregs sregs;

    if (breakpoints_rest(set, e) < 0 || trace_leave(set->vcpu, e) < 0)
        return BREAKPOINT_FAILED;
    const struct kvm_regs regs = *set->vcpu->regs;
    if (watchpoints_changed(set)) /* what the trace did for one instruction, it has done all of */
        return BREAKPOINT_HIT;
    if (traced) { /* where it stands now is to be looked at first */
        breakpoint_filter_pause(set);
        return BREAKPOINT_NONE;
    }
    /* The page may be one of the tables by which the instruction is fetched. */
    vcpu_get_sregs(set->vcpu, &sregs);
    if (has_breakpoint(set, &regs, &sregs) && !vcpu_event_pending(set->vcpu) &&
        !vcpu_nmi_pending(set->vcpu))
        return pass(set, &regs, &sregs, exit, e);
    return watchpoints_let_write(set, exit, e);
}

static enum breakpoint_stop run_once(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct breakpoint *at;

    if (look_at_entries(set))
        return BREAKPOINT_HIT;
    arm(set, NULL);
    enum armed_stop stop = run_armed(set, &at, &regs, &sregs, exit, e);
    disarm(set);
    if (stop == ARMED_FAILED)
        return BREAKPOINT_FAILED;
    if (stop == ARMED_PROTECTED)
        return let_write(set, exit, e);
    if (stop == ARMED_WATCHED)
        return BREAKPOINT_HIT;
    if (stop == ARMED_REPEATING) {
        stop_trace(set);
        return breakpoints_leave(set, exit, e);
    }
    if (!at && exit->kind != EXIT_KICK)
        return BREAKPOINT_EXIT;
    /* Asked each time: kicks may come faster than the guest gets anywhere. */
    if (set->interrupted ? *set->interrupted : exit->kind == EXIT_KICK) {
        if (at) /* which counts when it is come to again */
            stand_at(set, &regs, &sregs);
        return BREAKPOINT_STOPPED;
    }
    if (at)
        return pass(set, &regs, &sregs, exit, e);
    if (breakpoints_are_late(set))
        return BREAKPOINT_LATE;
    if (set->kicked)
        set->kicked(set->kicked_opaque);
    return BREAKPOINT_NONE;
}

/* KVM may read the length of an instruction that is half done where it lies, under a HLT of ours (a
 * CPU that does not tell the next RIP, as QEMU's). */
static int complete_under(const struct breakpoints *set, struct err *e)
{
    struct vcpu *vcpu = set->vcpu;
    const unsigned reason = vcpu->run->exit_reason;
    struct kvm_sregs sregs;

    if (reason != KVM_EXIT_IO && reason != KVM_EXIT_X86_RDMSR && reason != KVM_EXIT_X86_WRMSR)
        return 0;
    vcpu_get_sregs(vcpu, &sregs);
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (b->va == linear_rip(vcpu->regs->rip, &sregs.cs))
            return vcpu_complete(vcpu, e);
    return 0;
}

void breakpoints_begin(struct breakpoints *set)
{
    for (struct breakpoint *b = set->first; b; b = b->next)
        b->hit = false;
    watchpoints_see(set);
}

enum breakpoint_stop breakpoints_run(struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    enum breakpoint_stop stop;

    assert(!set->most_exits || set->interrupted);
    breakpoints_begin(set);
    /* The next access of an instruction that has stored by an earlier one. */
    if (watchpoints_stored(set) && breakpoints_complete(set, e) < 0)
        return BREAKPOINT_FAILED;
    if (complete_under(set, e) < 0)
        return BREAKPOINT_FAILED;
    if (vcpu_is_halfway(set->vcpu))
        return vcpu_run(set->vcpu, exit, e) < 0 ? BREAKPOINT_FAILED : BREAKPOINT_EXIT;
    if (watchpoints_stored(set))
        return watchpoints_stop_here(set, exit, e);
    if (watchpoints_changed(set)) /* by an INS */
        return BREAKPOINT_HIT;
    if (breakpoints_at_hook(set))
        return breakpoints_run_to_hook(set, exit, e);
    if (is_stepped(set))
        return run_stepped(set, exit, e);
    /* What stands on a REP was looked at when that began. */
    stop = set->repeating ? breakpoints_leave(set, exit, e) : BREAKPOINT_NONE;
    while (stop == BREAKPOINT_NONE && !has_spent_exits(set))
        stop = run_once(set, exit, e);
    if (stop == BREAKPOINT_NONE && (breakpoints_rest(set, e) < 0 || trace_leave(set->vcpu, e) < 0))
        stop = BREAKPOINT_FAILED;
    stop_trace(set);
    return stop;
}
