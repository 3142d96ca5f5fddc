/*
 * Forced points without a counter: a point is described by its registers and the memory around it
 * (vmm/points/fingerprint.h), and found again by a breakpoint on its instruction from the previous
 * sync point on (vmm/points/landmark_land.c). This file chooses them: a place near
 * (vmm/points/place.h), and what tells its passes apart, so that a replay looks at few of them.
 */
#include "vmm/points/clock.h"

#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/entry_count.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/look.h"
#include "vmm/points/place.h"
#include "vmm/points/same_passes.h"
#include "vmm/points/written.h"

/* Whether the search for a place is over, without one. */
static bool has_ended(enum clock_choice choice)
{
    return choice == CLOCK_EXITED || choice == CLOCK_FAILED;
}

/* Without the words where landing on user code leaves the frame of an exception; how many are left.
 */
static unsigned drop_frame(struct vcpu *vcpu, const struct landmark *landmark, uint64_t *va,
                           unsigned count)
{
    const uint64_t frame = landmark->cpl == 3 ? gphook_user_frame_gpa(vcpu) : 0;
    unsigned left = 0;

    for (unsigned i = 0; i < count; i++) {
        struct translation t;
        if (!frame || !walk(&vcpu->vm->memory, landmark->cr3, va[i], &t) ||
            t.gpa + 7 - frame >= sizeof(struct exception_frame) + 7)
            va[left++] = va[i];
    }
    return left;
}

/* Have the landmark hold these words, which have changed; returns how many it can. */
static unsigned hold(struct clock *c, struct landmark *landmark, uint64_t *va, unsigned count)
{
    count = drop_frame(c->vcpu, landmark, va, count);
    fingerprint_probe_also(&c->vcpu->vm->memory, landmark, va, count);
    return count;
}

/* ... those that have changed while it was looked. */
static unsigned hold_changed(struct clock *c, struct landmark *landmark)
{
    uint64_t changed[WRITTEN_CHANGED];
    const unsigned count = written_changed(c->vcpu->vm, landmark->cr3, landmark->cpl, changed);

    return hold(c, landmark, changed, count);
}

/* The vCPU stops at a place that was chosen, if one was: nothing runs until its sync point. */
static enum clock_choice stop_at(struct clock *c, const struct clock_host *host,
                                 enum clock_choice choice, struct landmark *landmark)
{
    if (choice == CLOCK_CHOSEN) {
        if (host->entries)
            entries_note(c->vcpu, host->entries, landmark);
        fingerprint_probe_stack(&c->vcpu->vm->memory, landmark);
        fingerprint_compare_written(c->vcpu, landmark);
        written_forced(c->vcpu->vm, landmark);
    }
    return choice;
}

/* A place near the vCPU's, and what tells its passes apart. A CPU that is to be stopped only if it
 * waits is not stopped where no next pass is seen; `surely`: nor where one changes anything. */
static enum clock_choice choose_in_loop(struct clock *c, const struct clock_host *host, bool surely,
                                        struct landmark *landmark, struct vcpu_exit *exit,
                                        struct err *e)
{
    uint64_t watched[WRITTEN_CHANGED];
    struct loop_pass pass;
    enum clock_choice choice = place_near(c, host, landmark, exit, e);

    if (choice != CLOCK_CHOSEN)
        return choice;
    /* The pass is looked at by itself. */
    const unsigned count = written_changed(c->vcpu->vm, landmark->cr3, landmark->cpl, watched);
    const bool by_steps = host->concurrent || clock_patches_itself(c->vcpu, host->hook);
    /* Where CPUs run at the same time, one that works near a PAUSE loses all its pages if it is
     * taken to wait. */
    const bool if_waiting = host->reason == CLOCK_IF_WAITING;
    const bool waits_surely = surely || (host->concurrent && if_waiting);
    choice = same_passes_look(c, host, landmark, by_steps, &pass, exit, e);
    if (choice == CLOCK_LATER && !surely && !if_waiting) { /* no loop, or a slow one */
        choice = place_near(c, host, landmark, exit, e);
        if (choice == CLOCK_CHOSEN) {
            hold_changed(c, landmark);
            hold(c, landmark, watched, count);
        }
        return choice;
    }
    if (choice != CLOCK_CHOSEN)
        return choice;
    if ((waits_surely && !pass.waits) || !place_here(c->vcpu, host, SITE_UNCOPIED, landmark))
        return CLOCK_LATER;
    hold(c, landmark, watched, count);
    hold(c, landmark, pass.changed_va, pass.changed);
    return CLOCK_CHOSEN;
}

enum clock_choice clock_choose_near(struct clock *c, const struct clock_host *host,
                                    struct landmark *landmark, struct vcpu_exit *exit,
                                    struct err *e)
{
    return stop_at(c, host, choose_in_loop(c, host, false, landmark, exit, e), landmark);
}

/*
 * A place in code that works, where CPUs run at the same time. Others wait for this one, and to
 * step through a pass of its loop takes as long as thousands of them. What it changes while it runs
 * on for a moment tells passes apart as well. CLOCK_LATER: it changes nothing.
 */
static enum clock_choice choose_watching(struct clock *c, const struct clock_host *host,
                                         struct landmark *landmark, struct vcpu_exit *exit,
                                         struct err *e)
{
    enum clock_choice choice = look_what_changes(c, host, exit, e);

    if (choice == CLOCK_CHOSEN)
        choice = place_near(c, host, landmark, exit, e);
    if (choice != CLOCK_CHOSEN)
        return choice;
    return hold_changed(c, landmark) ? CLOCK_CHOSEN : CLOCK_LATER;
}

/* Where other CPUs run the same code. */
static enum clock_choice choose_concurrently(struct clock *c, const struct clock_host *host,
                                             struct landmark *landmark, struct vcpu_exit *exit,
                                             struct err *e)
{
    if (host->watches && host->reason != CLOCK_IF_WAITING && !look_near_pause(c->vcpu)) {
        const enum clock_choice choice = choose_watching(c, host, landmark, exit, e);
        if (choice != CLOCK_LATER)
            return choice;
    }
    return choose_in_loop(c, host, false, landmark, exit, e);
}

/* Kernel code that works, and is in no small loop that could wait: what it changed while it was
 * watched tells passes of the place apart inside the guest. */
static enum clock_choice choose_in_work(struct clock *c, const struct clock_host *host,
                                        struct landmark *landmark, struct vcpu_exit *exit,
                                        struct err *e)
{
    const enum clock_choice choice = place_near(c, host, landmark, exit, e);

    if (choice == CLOCK_CHOSEN)
        hold_changed(c, landmark);
    return choice;
}

/* Kernel code that is stopped only if it waits: by a CPU whose turn it is, or before there is user
 * space, when it may call schedule() until another CPU is up. */
static enum clock_choice choose_if_it_waits(struct clock *c, const struct clock_host *host,
                                            struct landmark *landmark, struct vcpu_exit *exit,
                                            struct err *e)
{
    const enum clock_choice waits = look_whether_it_waits(c, host, exit, e);

    if (waits == CLOCK_CHOSEN)
        return choose_in_loop(c, host, false, landmark, exit, e);
    if (has_ended(waits) || host->reason == CLOCK_IF_WAITING || host->effort < CLOCK_WAITING_LOOP)
        return waits;
    return choose_in_loop(c, host, true, landmark, exit, e);
}

/* Kernel code in no small loop and near no PAUSE: it does not wait for anything. */
static bool kernel_works(struct vcpu *vcpu)
{
    struct small_loop loop;

    return vcpu_cpl(vcpu) == 0 && !look_near_pause(vcpu) &&
           !fingerprint_loop(vcpu, vcpu->regs->rip, &loop);
}

/*
 * What tells passes of a place apart depends on the code that the vCPU is in:
 *
 *   other CPUs run it, too             choose_concurrently(): nothing of ours may be put there
 *   kernel code, if it must wait       choose_if_it_waits(): looked at again some times
 *   kernel code that works             choose_in_work(): what it was seen to change
 *   other code                         choose_in_loop(): what a pass of its loop changes and reads
 */
static enum clock_choice choose_place(struct clock *c, const struct clock_host *host,
                                      struct landmark *landmark, struct vcpu_exit *exit,
                                      struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const bool if_waiting = host->reason == CLOCK_IF_WAITING;
    const bool patches = clock_patches_itself(vcpu, host->hook);
    const bool must_wait = host->effort < CLOCK_ANY_PLACE && (if_waiting || patches);

    written_look_away(vcpu->vm);
    if (if_waiting && !look_near_pause(vcpu))
        return CLOCK_LATER;
    if (host->concurrent)
        return choose_concurrently(c, host, landmark, exit, e);
    /* Code that steps itself would be in its kernel behind the moment, nearly always; and code that
     * lets nobody in for most of its time would never be stopped. */
    if (host->watches && !patches && host->effort < CLOCK_ANY_PLACE &&
        !(vcpu->regs->rflags & RFLAGS_TF)) {
        const enum clock_choice choice = look_what_changes(c, host, exit, e);
        if (has_ended(choice))
            return choice;
        if (if_waiting && !look_near_pause(vcpu))
            return CLOCK_LATER;
    }
    if (vcpu_cpl(vcpu) == 0 && must_wait)
        return choose_if_it_waits(c, host, landmark, exit, e);
    if (!patches && kernel_works(vcpu))
        return choose_in_work(c, host, landmark, exit, e);
    return choose_in_loop(c, host, false, landmark, exit, e);
}

static enum clock_choice choose(struct clock *c, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    return stop_at(c, host, choose_place(c, host, landmark, exit, e), landmark);
}

/* ---- the table ---- */

static int open_clock(struct clock *c, struct err *e)
{
    (void)e;
    breakpoints_probe(c->vcpu->vm);
    return 0;
}

static int run(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run(c->vcpu, exit, e);
}

static int step(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run_step(c->vcpu, exit, e);
}

const struct clock_ops clock_landmark = {
    .name = "landmark",
    .description = "registers and memory, found again by a breakpoint; needs no counter",
    .open = open_clock,
    .run = run,
    .step = step,
    .choose = choose,
    .land = landmark_land,
};
