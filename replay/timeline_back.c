/* Going backwards: see replay/timeline.h. */
#include "replay/timeline.h"

#include "replay/divergence.h"
#include "vmm/points/watchpoint.h"

/* Steps that are tried before the way is looked for anew. */
#define TRY_STEPS 3000u
/* Hits of breakpoints between two checkpoints at hits. */
#define HITS_MARKED 32u
/* From so many hits in a stretch on they are counted inside the guest; of how many breakpoints. */
#define HITS_LOOKED_AT 256u
#define COUNTED_MAX    16u

static struct checkpoint *before(const struct checkpoint *c)
{
    return c->moment.earlier ? checkpoint_of(c->moment.earlier) : NULL;
}

/* The sync point behind which the way to a checkpoint is, at the latest. */
static uint64_t sync_before(const struct checkpoint *c)
{
    return c->mark.at_sync && c->mark.ordinal ? c->mark.ordinal - 1 : c->mark.ordinal;
}

/* ---- one step ---- */

/* Stand so many steps behind a checkpoint. */
static enum timeline_stop stand(struct timeline *t, struct checkpoint *c, uint64_t steps,
                                struct err *e)
{
    if (timeline_restore(t, c, e) < 0)
        return TIMELINE_FAILED;
    enum timeline_stop stop = timeline_steps(t, steps, e);
    t->interrupted = false;
    return stop;
}

/* Have a checkpoint before `to`, at this sync point or the next one where one can stand. */
static enum timeline_stop come_to_sync(struct timeline *t, struct checkpoint *to, uint64_t ordinal,
                                       struct err *e)
{
    if (timeline_bring_in(t, ordinal, e) < 0)
        return TIMELINE_FAILED;
    struct checkpoint *from = before(to);
    if (from->mark.ordinal >= ordinal)
        return timeline_restore(t, from, e) < 0 ? TIMELINE_FAILED : TIMELINE_THERE;
    if (timeline_restore(t, from, e) < 0)
        return TIMELINE_FAILED;
    enum timeline_stop stop = timeline_run(t, ordinal, e);
    if (stop == TIMELINE_THERE && t->steps && !timeline_mark(t, STEPS_UNKNOWN, e))
        return TIMELINE_FAILED;
    return stop;
}

/* Have a checkpoint in the same interval between sync points as `to`, before it; where the sync
 * point is in the middle of an instruction, before that. */
static enum timeline_stop come_to_interval(struct timeline *t, struct checkpoint *to, struct err *e)
{
    uint64_t ordinal = sync_before(to), back = 1;
    enum timeline_stop stop = come_to_sync(t, to, ordinal, e);

    for (; stop == TIMELINE_THERE && t->here == to; back *= 2) {
        ordinal -= back < ordinal ? back : ordinal;
        stop = come_to_sync(t, to, ordinal, e);
    }
    return stop;
}

/* ---- coming nearer ---- */

/* How often code at va is executed between here and t->target, the instruction where we stand
 * included. */
static enum timeline_stop count_passes(struct timeline *t, uint64_t va, unsigned cpl,
                                       uint64_t *passes, struct err *e)
{
    struct breakpoint b = {.va = va, .cpl = cpl, .countdown = COUNT_MAX};
    const bool is_target = va == t->target->here.regs[REGISTER_RIP] && !t->target->mark.at_sync;

    t->passes = 0;
    if (!is_target && breakpoints_add(&t->player->stops, &b, e) < 0)
        return TIMELINE_FAILED;
    t->counts_passes = is_target;
    enum timeline_stop stop = timeline_run(t, t->target->mark.ordinal + 1, e);
    t->counts_passes = false;
    if (!is_target)
        breakpoints_remove(&t->player->stops, &b);
    *passes = is_target ? t->passes : COUNT_MAX - b.countdown;
    return stop;
}

/* Run to the n-th pass from here on. */
static enum timeline_stop go_to_pass(struct timeline *t, uint64_t va, unsigned cpl, uint64_t n,
                                     struct err *e)
{
    struct breakpoint b = {.va = va, .cpl = cpl, .countdown = n};

    if (breakpoints_add(&t->player->stops, &b, e) < 0)
        return TIMELINE_FAILED;
    enum timeline_stop stop = timeline_run(t, t->target->mark.ordinal + 1, e);
    breakpoints_remove(&t->player->stops, &b);
    if (stop != TIMELINE_BREAKPOINT)
        return stop;
    return !t->steps || timeline_mark(t, STEPS_UNKNOWN, e) ? TIMELINE_THERE : TIMELINE_FAILED;
}

/*
 * It is too far to t->target for single steps: code in between is executed often. Go to where the
 * target's own code, or else the code where we stand, is passed for the last time before it. What
 * is passed is counted inside the guest.
 */
static enum timeline_stop come_nearer(struct timeline *t, struct err *e)
{
    struct checkpoint *const to = (struct checkpoint *)t->target;
    struct kvm_sregs sregs;
    uint64_t passes = 0;

    if (t->steps && !timeline_mark(t, t->steps, e))
        return TIMELINE_FAILED;
    struct checkpoint *const from = t->here;
    vcpu_get_sregs(&t->player->cpu->vcpu, &sregs);
    const uint64_t here = player_mark_regs(&from->mark)->rip,
                   there = player_mark_regs(&to->mark)->rip;
    const struct {
        uint64_t va;
        unsigned cpl;
    } places[] = {{there, to->mark.cpus[to->mark.cpu].state.sregs.ss.dpl}, {here, sregs.ss.dpl}};
    for (unsigned i = to->mark.at_sync ? 1 : 0; i < 2; i++) {
        const uint64_t va = places[i].va;
        enum timeline_stop stop = count_passes(t, va, places[i].cpl, &passes, e);
        if (stop != TIMELINE_THERE)
            return stop;
        if (timeline_restore(t, from, e) < 0)
            return TIMELINE_FAILED;
        /* Both ends of the way are counted, if they are passes, but are not where to go. */
        const uint64_t first = va == here && !from->repeating;
        for (uint64_t n = passes - (passes && va == there && !to->repeating); n > first; n--) {
            stop = go_to_pass(t, va, places[i].cpl, n, e);
            if (stop != TIMELINE_THERE || t->here != to)
                return stop;
            /* Fewer came than were counted: an instruction that faults may be counted again. */
            if (timeline_restore(t, from, e) < 0)
                return TIMELINE_FAILED;
        }
    }
    return TIMELINE_THERE;
}

/* Find out how many steps it is to a checkpoint from the one before it, which may be a new one. */
static enum timeline_stop count_steps(struct timeline *t, struct checkpoint *to, struct err *e)
{
    enum timeline_stop stop = TIMELINE_THERE;
    struct timeline_stops stops;

    if (to->steps != STEPS_UNKNOWN)
        return TIMELINE_THERE;
    if (timeline_detach(t, &stops, e) < 0)
        return TIMELINE_FAILED;
    t->target = to;
    stop = come_to_interval(t, to, e);
    while (stop == TIMELINE_THERE && to->steps == STEPS_UNKNOWN) {
        stop = timeline_steps(t, TRY_STEPS, e);
        if (stop == TIMELINE_THERE && to->steps == STEPS_UNKNOWN)
            stop = come_nearer(t, e);
    }
    t->target = NULL;
    timeline_attach(t, &stops);
    return stop;
}

/* Go on as if nothing had been asked for. */
static enum timeline_stop give_up(struct timeline *t, struct checkpoint *to,
                                  enum timeline_stop stop, struct err *e)
{
    t->interrupted = false;
    if (stop == TIMELINE_DIVERGED)
        divergence_report(t->player, stderr);
    if (stop == TIMELINE_BREAKPOINT || stop == TIMELINE_FAILED)
        return stop;
    t->steps = STEPS_UNKNOWN;
    return timeline_restore(t, to, e) < 0 ? TIMELINE_FAILED : stop;
}

/* It is not behind an error from which there was no way back. */
static bool is_known(const struct timeline *t, struct err *e)
{
    if (t->steps != STEPS_UNKNOWN)
        return true;
    err_set(e, STATUS_ERROR,
            "where this is is not known since the error before; monitor seek goes elsewhere");
    return false;
}

static enum timeline_stop reverse_step(struct timeline *t, struct err *e)
{
    struct checkpoint *at = t->here;
    enum timeline_stop stop;

    if (!is_known(t, e))
        return TIMELINE_FAILED;
    if (t->steps)
        return stand(t, at, t->steps - 1, e);
    do {
        if (!before(at))
            return TIMELINE_BEGIN;
        stop = count_steps(t, at, e);
        if (stop != TIMELINE_THERE)
            return give_up(t, at, stop, e);
        if (at->steps)
            return stand(t, before(at), at->steps - 1, e);
        at = before(at); /* the same place: a window or forced point */
    } while (true);
}

enum timeline_stop timeline_reverse_step(struct timeline *t, struct err *e)
{
    enum timeline_stop stop = timeline_undo(t, e);

    if (stop != TIMELINE_THERE)
        return stop;
    timeline_keep_all(t, true);
    watchpoints_see(&t->player->stops);
    stop = reverse_step(t, e);
    timeline_keep_all(t, false);
    return stop == TIMELINE_THERE && watchpoints_changed(&t->player->stops) ? TIMELINE_BREAKPOINT
                                                                            : stop;
}

/* ---- to a breakpoint ---- */

/*
 * The last hit in a stretch of the way: so many hits behind a checkpoint, 0 being at it; or so many
 * steps. Running, memory that is watched stops behind the instruction that changed it; stepping, it
 * is noted before.
 */
struct last_hit {
    struct checkpoint *from;
    unsigned hits;
    uint64_t steps; /* or STEPS_UNKNOWN */
    bool leave;     /* `from` is at a breakpoint, which is to be left first */
    bool left;      /* it is behind what happens at a sync point, which is those steps away */
    bool watched;   /* the hit is that of memory, not of a breakpoint */
};

/* A breakpoint stops at any place but a sync point's, which is left first. A forced point is one
 * that the CPU came to by itself, and before what happens there. */
static bool stands_at_breakpoint(struct timeline *t)
{
    const struct player *p = t->player;

    return (!p->at_sync || p->cpu->last_sync.kind == EXIT_FORCED) && timeline_at_breakpoint(t);
}

/* From a checkpoint to t->target, step by step. */
static enum timeline_stop search_steps(struct timeline *t, struct last_hit *last, struct err *e)
{
    struct checkpoint *const from = t->here;
    const uint64_t steps = t->target->steps;

    for (uint64_t i = 0, done; i < steps; i += done) {
        if (stands_at_breakpoint(t))
            *last = (struct last_hit){.from = from, .steps = i};
        enum timeline_stop stop = timeline_step_watching(t, steps - i, &done, e);
        if (t->left_hit)
            *last = (struct last_hit){.from = from, .steps = i, .left = true};
        if (stop == TIMELINE_BREAKPOINT)
            *last = (struct last_hit){.from = from, .steps = i + done - 1, .watched = true};
        else if (stop != TIMELINE_THERE)
            return stop;
    }
    return TIMELINE_THERE;
}

/* Run to the next hit, or t->target. *leave: we stand at a breakpoint that was hit already. If that
 * is at the target's own place, the target is passed within the step that leaves it: THERE, and
 * t->steps is not 0. */
static enum timeline_stop next_hit(struct timeline *t, bool *leave, struct err *e)
{
    uint64_t done;
    enum timeline_stop stop = *leave ? timeline_step_watching(t, 1, &done, e) : TIMELINE_THERE;

    if (stop != TIMELINE_FAILED && t->here == t->target && t->steps)
        return TIMELINE_THERE;
    if (stop == TIMELINE_THERE && t->here != t->target)
        stop = timeline_run(t, UINT64_MAX, e);
    *leave = stop == TIMELINE_BREAKPOINT && !breakpoints_watch_hit(&t->player->stops);
    return stop;
}

/* Breakpoints in place of the user's, whose passes are counted inside the guest. */
struct counted {
    struct breakpoint breakpoint[COUNTED_MAX];
    uint64_t passes[COUNTED_MAX]; /* that are still to come, behind those that it counts down */
    unsigned count;
};

static bool may_count(const struct timeline *t)
{
    unsigned count = 0;

    for (const struct breakpoint *b = t->player->stops.first; b; b = b->next)
        count++;
    return !t->player->stops.watched && count <= COUNTED_MAX;
}

static int add_counted(struct timeline *t, struct counted *c, struct err *e)
{
    for (unsigned i = 0; i < c->count; i++)
        if (c->breakpoint[i].countdown &&
            breakpoints_add(&t->player->stops, &c->breakpoint[i], e) < 0)
            return -1;
    return 0;
}

static void remove_counted(struct timeline *t, struct counted *c)
{
    for (unsigned i = 0; i < c->count; i++)
        breakpoints_remove(&t->player->stops, &c->breakpoint[i]);
}

/* Leave the breakpoint where we stand, and run to where a count is over, or to t->target. */
static enum timeline_stop run_counting(struct timeline *t, struct counted *c, struct err *e)
{
    enum timeline_stop stop = timeline_steps(t, 1, e);

    if (stop == TIMELINE_THERE && t->here != t->target) {
        stop = add_counted(t, c, e) < 0 ? TIMELINE_FAILED : timeline_run(t, UINT64_MAX, e);
        remove_counted(t, c);
    }
    return stop;
}

/* Whether a checkpoint is at this instruction, so that who comes there passes it. A sync point of
 * another kind is behind what it is called by. */
static bool is_a_pass(const struct checkpoint *c, const struct breakpoint *b)
{
    const struct cpu_mark *cpu = &c->mark.cpus[c->mark.cpu];
    const struct kvm_sregs *sregs = &cpu->state.sregs;

    return !c->repeating && (!c->mark.at_sync || cpu->last_sync.kind == EXIT_FORCED) &&
           b->va == linear_rip(cpu->state.regs.rip, &sregs->cs) &&
           (b->any_cpl || b->cpl == sregs->ss.dpl);
}

/* How often each is passed between here and t->target, which itself is no pass on the way. */
static enum timeline_stop count_all(struct timeline *t, struct counted *c, struct err *e)
{
    const enum timeline_stop stop = run_counting(t, c, e);

    for (unsigned i = 0; i < c->count; i++) {
        c->passes[i] = COUNT_MAX - c->breakpoint[i].countdown;
        if (c->passes[i] && is_a_pass(t->target, &c->breakpoint[i]))
            c->passes[i]--;
    }
    return stop;
}

/* The next place to stop at of each: half of its passes, so that the way back from there is short,
 * whatever is looked for next; of the last HITS_MARKED the last. */
static bool count_down(struct counted *c)
{
    bool any = false;

    for (unsigned i = 0; i < c->count; i++) {
        struct breakpoint *b = &c->breakpoint[i];
        if (!b->countdown) {
            const uint64_t passes = c->passes[i];
            b->countdown = passes > HITS_MARKED ? passes / 2 : passes;
            c->passes[i] -= b->countdown;
        }
        any |= b->countdown > 0;
    }
    return any;
}

/* The last of them all is the last at which one of them is over. Not *found: t->target came first,
 * as a place was passed otherwise than when it was counted. */
static enum timeline_stop go_to_last(struct timeline *t, struct counted *c, struct last_hit *last,
                                     bool *found, struct err *e)
{
    *found = false;
    for (unsigned i = 0; i < c->count; i++)
        c->breakpoint[i].countdown = 0;
    while (count_down(c)) {
        const enum timeline_stop stop = run_counting(t, c, e);
        if (stop != TIMELINE_BREAKPOINT)
            return stop;
        last->from = t->steps ? timeline_mark(t, STEPS_UNKNOWN, e) : t->here;
        if (!last->from)
            return TIMELINE_FAILED;
    }
    *found = true;
    return TIMELINE_THERE;
}

/* Finish a search_running() from the hit where we stand, without an exit for each of those that
 * follow: they are counted, and the last is gone to by its number. Not *found: we stand there
 * again, and *last is that hit. */
static enum timeline_stop search_counting(struct timeline *t, struct last_hit *last, bool *found,
                                          struct err *e)
{
    struct checkpoint *const from = t->steps ? timeline_mark(t, STEPS_UNKNOWN, e) : t->here;
    struct counted c = {.count = 0};
    struct timeline_stops stops;

    *found = false;
    if (!from || timeline_detach(t, &stops, e) < 0)
        return TIMELINE_FAILED;
    *last = (struct last_hit){.from = from, .steps = STEPS_UNKNOWN, .leave = true};
    for (const struct breakpoint *b = stops.first; b; b = b->next) {
        struct breakpoint *counted = &c.breakpoint[c.count++];
        *counted = breakpoint_at_place_of(b);
        counted->patient = b->patient;
        counted->countdown = COUNT_MAX;
    }
    enum timeline_stop stop = count_all(t, &c, e);
    if (stop == TIMELINE_THERE)
        stop =
            timeline_restore(t, from, e) < 0 ? TIMELINE_FAILED : go_to_last(t, &c, last, found, e);
    timeline_attach(t, &stops);
    if (stop == TIMELINE_THERE && !*found) {
        *last = (struct last_hit){.from = from, .steps = STEPS_UNKNOWN, .leave = true};
        stop = timeline_restore(t, from, e) < 0 ? TIMELINE_FAILED : stop;
    }
    return stop;
}

/* The same as search_steps(), running. */
static enum timeline_stop search_running(struct timeline *t, struct last_hit *last, struct err *e)
{
    bool leave = stands_at_breakpoint(t);
    struct last_hit one_before = {0};
    enum timeline_stop stop;
    unsigned hits = 0;
    bool found;

    if (leave)
        *last = (struct last_hit){.from = t->here, .steps = STEPS_UNKNOWN, .leave = true};
    while ((stop = next_hit(t, &leave, e)) == TIMELINE_BREAKPOINT) {
        one_before = *last;
        if (!last->from || ++last->hits >= HITS_MARKED) {
            struct checkpoint *c = t->steps ? timeline_mark(t, STEPS_UNKNOWN, e) : t->here;
            if (!c)
                return TIMELINE_FAILED;
            *last = (struct last_hit){.from = c, .steps = STEPS_UNKNOWN, .leave = leave};
        }
        last->watched = !leave;
        if (t->interrupted)
            return TIMELINE_INTERRUPTED;
        if (++hits != HITS_LOOKED_AT || !may_count(t))
            continue;
        stop = search_counting(t, last, &found, e);
        if (stop != TIMELINE_THERE || found)
            return stop;
    }
    if (stop == TIMELINE_THERE && t->steps) /* that hit is at the target's own place */
        *last = one_before;
    if (stop != TIMELINE_THERE || t->steps || !t->player->at_sync)
        return stop;
    /* At a sync point its access is done. */
    if (player_finish_exit(t->player, e) < 0)
        return TIMELINE_FAILED;
    if (breakpoints_stored(&t->player->stops))
        *last = (struct last_hit){.from = t->here, .steps = STEPS_UNKNOWN, .watched = true};
    return stop;
}

/* From where we stand to t->target, noting the last hit before it. */
static enum timeline_stop search(struct timeline *t, struct last_hit *last, struct err *e)
{
    *last = (struct last_hit){0};
    return t->target->steps == STEPS_UNKNOWN ? search_running(t, last, e)
                                             : search_steps(t, last, e);
}

/* Stand before the instruction that changes what is watched, with `hit` set in that. */
static enum timeline_stop go_to_step(struct timeline *t, const struct last_hit *hit, struct err *e)
{
    enum timeline_stop stop = stand(t, hit->from, hit->steps, e);
    uint64_t done;

    if (stop == TIMELINE_THERE && hit->watched) {
        stop = timeline_step_watching(t, 1, &done, e);
        if (stop == TIMELINE_BREAKPOINT)
            stop = stand(t, hit->from, hit->steps, e);
    } else if (stop == TIMELINE_THERE && hit->left) {
        stop = timeline_leave_sync(t, e);
        if (stop == TIMELINE_THERE && (t->here->mark.at_sync || t->steps) &&
            !timeline_mark(t, t->steps, e))
            return TIMELINE_FAILED;
    } else if (stop == TIMELINE_THERE) {
        timeline_at_breakpoint(t); /* for which ones are hit */
    }
    return stop == TIMELINE_THERE ? TIMELINE_BREAKPOINT : stop;
}

/* From behind what changed watched memory to before it. TIMELINE_THERE: it was not the last step,
 * before which we stand. */
static enum timeline_stop go_before_change(struct timeline *t, struct err *e)
{
    struct last_hit step = {.watched = true};
    enum timeline_stop stop = reverse_step(t, e);

    if (stop != TIMELINE_THERE)
        return stop;
    step.from = t->here;
    step.steps = t->steps;
    stop = go_to_step(t, &step, e);
    if (stop != TIMELINE_BREAKPOINT || breakpoints_watch_hit(&t->player->stops))
        return stop;
    return stand(t, step.from, step.steps, e);
}

/* Go to a hit that was noted. */
static enum timeline_stop go_to_hit(struct timeline *t, const struct last_hit *hit, struct err *e)
{
    enum timeline_stop stop = TIMELINE_BREAKPOINT;
    bool leave = hit->leave;

    if (timeline_restore(t, hit->from, e) < 0)
        return TIMELINE_FAILED;
    if (hit->steps != STEPS_UNKNOWN)
        return go_to_step(t, hit, e);
    for (unsigned i = 0; i < hit->hits && stop == TIMELINE_BREAKPOINT; i++)
        stop = next_hit(t, &leave, e);
    if (stop != TIMELINE_BREAKPOINT)
        return stop;
    if (t->steps && !timeline_mark(t, STEPS_UNKNOWN, e))
        return TIMELINE_FAILED;
    if (!hit->watched) {
        timeline_at_breakpoint(t);
        return stop;
    }
    stop = go_before_change(t, e);
    if (stop == TIMELINE_THERE) /* at a sync point: we stood behind what was taken there */
        stop = go_before_change(t, e);
    return stop == TIMELINE_THERE ? TIMELINE_BREAKPOINT : stop;
}

static enum timeline_stop reverse_continue(struct timeline *t, struct err *e)
{
    enum timeline_stop stop = TIMELINE_THERE;
    struct last_hit last;

    if (!is_known(t, e))
        return TIMELINE_FAILED;
    if (t->steps && !timeline_mark(t, t->steps, e))
        return TIMELINE_FAILED;
    struct checkpoint *const start = t->here;
    for (struct checkpoint *to = start; before(to);) {
        if (timeline_bring_in(t, sync_before(to), e) < 0)
            return TIMELINE_FAILED;
        struct checkpoint *const from = before(to);
        t->target = to;
        stop = timeline_restore(t, from, e) < 0 ? TIMELINE_FAILED : search(t, &last, e);
        t->target = start; /* it stays */
        if (stop == TIMELINE_THERE && last.from)
            stop = go_to_hit(t, &last, e);
        t->target = NULL;
        if (stop != TIMELINE_THERE)
            return give_up(t, start, stop, e);
        to = from; /* not those that were made on the way */
    }
    t->interrupted = false;
    return timeline_restore(t, &t->first, e) < 0 ? TIMELINE_FAILED : TIMELINE_BEGIN;
}

enum timeline_stop timeline_reverse_continue(struct timeline *t, struct err *e)
{
    enum timeline_stop stop = timeline_undo(t, e);

    if (stop == TIMELINE_FAILED)
        return stop;
    if (stop == TIMELINE_UNDONE && timeline_at_breakpoint(t))
        return TIMELINE_BREAKPOINT;
    timeline_keep_all(t, true);
    stop = reverse_continue(t, e);
    timeline_keep_all(t, false);
    return stop;
}
