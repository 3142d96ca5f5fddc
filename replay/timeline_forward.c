/* A replay's way forwards, between checkpoints: see replay/timeline.h. */
#include "replay/timeline.h"

#include "replay/divergence.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/gphook.h"
#include "vmm/points/watchpoint.h"

/* Sync points between two looks at the clock. */
#define SLICE_SYNCS 8
/* Steps between checkpoints: what going back one step costs at most. */
#define CRUMB_STEPS 256

/* The one behind t->here; NULL: that is the last. */
static struct checkpoint *next_checkpoint(const struct timeline *t)
{
    struct moment *later = t->here->moment.later;

    return later ? checkpoint_of(later) : NULL;
}

/* We stand where the next checkpoint is, or `steps` behind it. */
static void pass(struct timeline *t, uint64_t steps)
{
    struct checkpoint *next = next_checkpoint(t);

    page_history_pass(&t->history, &next->moment);
    t->here = next;
    t->steps = steps;
}

enum timeline_stop timeline_stop_of(const struct timeline *t)
{
    switch (t->player->status) {
    case PLAYER_BREAK:
        return TIMELINE_BREAKPOINT;
    case PLAYER_ENDED:
    case PLAYER_CUT:
        return TIMELINE_END;
    case PLAYER_DIVERGED:
        return TIMELINE_DIVERGED;
    default:
        return t->interrupted ? TIMELINE_INTERRUPTED : TIMELINE_THERE;
    }
}

bool timeline_at_breakpoint(struct timeline *t)
{
    struct player *p = t->player;
    struct kvm_sregs sregs;

    vcpu_get_sregs(&p->cpu->vcpu, &sregs);
    return breakpoints_look(&p->stops, p->cpu->vcpu.regs, &sregs) > 0;
}

/* Checkpoints between the sync points ahead that nobody asked for: running past them, one could not
 * tell whether one did. */
static void drop_on_the_way(struct timeline *t)
{
    for (struct moment *m = t->here->moment.later, *later; m; m = later) {
        struct checkpoint *c = checkpoint_of(m);
        later = m->later;
        if (c->mark.ordinal > t->player->ordinal || c == t->target)
            return;
        if (!c->mark.at_sync && !c->number)
            timeline_drop(t, c);
    }
}

/* A checkpoint between sync points that is ahead. */
struct ahead {
    const struct checkpoint *checkpoint;
    struct player *player;
    uint64_t frame[MAX_VCPUS]; /* of each CPU, as in vmm/points/written_pages.h */
    const struct page_version *differed;
};

static bool has_page(void *opaque, uint64_t page, const uint8_t *bytes)
{
    const struct ahead *a = opaque;

    return written_page_is(&a->player->vm, a->frame, a->player->cpu_count, page, bytes);
}

/* Whether the vCPU, with these registers, is there. What a landmark describes of memory may be the
 * same in another pass; the pages written since the checkpoint before are not. */
static bool is_at(struct ahead *a, struct vcpu *vcpu, const struct kvm_regs *regs,
                  const struct kvm_sregs *sregs)
{
    const struct landmark *here = &a->checkpoint->here;

    if (!fingerprint_matches(vcpu, regs, sregs, here))
        return false;
    /* Also of a CPU that is in its kernel: the frame is left from before. */
    for (unsigned i = 0; i < a->player->cpu_count; i++)
        a->frame[i] = gphook_user_frame_gpa(&a->player->cpus[i].vcpu);
    return page_history_is_at(&a->checkpoint->moment, has_page, a, &a->differed);
}

static bool stops_at(const struct breakpoint *b, struct vcpu *vcpu, const struct kvm_regs *regs,
                     const struct kvm_sregs *sregs)
{
    return is_at(b->opaque, vcpu, regs, sregs);
}

/* One piece of the way: to a sync point, or to the checkpoint *within. */
static int run_piece(struct timeline *t, uint64_t until, struct checkpoint *within, bool *arrived,
                     struct err *e)
{
    struct player *p = t->player;
    struct trace_condition conditions[TRACE_CONDITIONS];
    struct breakpoint b = {0};
    struct ahead ahead = {.checkpoint = within, .player = p};

    *arrived = false;
    t->steps = STEPS_UNKNOWN;
    p->interrupted = false; /* of an earlier run; of this one t->interrupted knows, too */
    if (!within)
        return player_run(p, until, e);
    b = within->repeating ? landmark_breakpoint_within(&within->here, conditions)
                          : landmark_breakpoint(&within->here, conditions);
    b.stops = stops_at;
    b.opaque = &ahead;
    /* A trace has one count. */
    b.countdown = within == t->target && t->counts_passes ? COUNT_MAX : 0;
    if (breakpoints_add(&p->stops, &b, e) < 0)
        return -1;
    p->stops_before = within == t->target ? &within->here : NULL;
    int rc = player_run(p, until, e);
    p->stops_before = NULL;
    *arrived = rc == 0 && p->status == PLAYER_BREAK && b.hit;
    if (*arrived && !p->at_sync) /* at a forced point the CPU has the flags of that */
        fingerprint_arrive(&p->cpu->vcpu, &within->here);
    breakpoints_remove(&p->stops, &b);
    if (b.countdown)
        t->passes += COUNT_MAX - b.countdown;
    return rc;
}

int timeline_detach(struct timeline *t, struct timeline_stops *stops, struct err *e)
{
    struct breakpoints *set = &t->player->stops;

    *stops = (struct timeline_stops){set->first, set->watched};
    breakpoints_forget_stores(set);
    set->first = NULL;
    set->watched = NULL;
    if (breakpoints_rest(set, e) == 0)
        return 0;
    timeline_attach(t, stops);
    return -1;
}

void timeline_attach(struct timeline *t, const struct timeline_stops *stops)
{
    t->player->stops.first = stops->first;
    t->player->stops.watched = stops->watched;
}

/* The checkpoint between sync points that comes next, if it is in this interval. */
static struct checkpoint *next_within(const struct timeline *t)
{
    struct checkpoint *next = next_checkpoint(t);

    return next && !next->mark.at_sync && next->mark.ordinal == t->player->ordinal ? next : NULL;
}

static void not_found(const struct checkpoint *c, struct err *e)
{
    err_set(e, STATUS_ERROR, "the way back to rip %#llx behind sync point %llu was not found again",
            (unsigned long long)player_mark_regs(&c->mark)->rip,
            (unsigned long long)c->mark.ordinal);
}

/* A checkpoint that was not noticed on the way: its place is not one that running comes to, as
 * within a REP. It goes, unless it is where we want to; a snapshot, which is the recording's,
 * stays. */
static bool was_passed(struct timeline *t, struct err *e)
{
    struct checkpoint *next = next_checkpoint(t);

    if (!next || next->mark.ordinal >= t->player->ordinal)
        return true;
    if (next != t->target) {
        if (next->moment.image)
            pass(t, STEPS_UNKNOWN);
        else
            timeline_drop(t, next);
        return was_passed(t, e);
    }
    not_found(next, e);
    return false;
}

/* The sync point to run to at the most: none is to be passed that has a checkpoint, or behind which
 * the next one is. `within` is between here and the next sync point. */
static uint64_t next_stop(const struct timeline *t, const struct checkpoint *within)
{
    for (struct moment *m = t->here->moment.later; m; m = m->later)
        if (checkpoint_of(m) != within && (!within || checkpoint_of(m)->mark.at_sync))
            return checkpoint_of(m)->mark.ordinal;
    return UINT64_MAX;
}

/* Whether the next checkpoint is here, or was passed by this step; it is passed then. */
static bool pass_next(struct timeline *t)
{
    struct player *p = t->player;
    struct checkpoint *next = next_checkpoint(t);
    const bool known = t->steps != STEPS_UNKNOWN;
    struct kvm_sregs sregs;

    if (!next || next->mark.ordinal > p->ordinal ||
        (next->mark.ordinal == p->ordinal && p->at_sync && !next->mark.at_sync))
        return false;
    if (known && next->steps != STEPS_UNKNOWN) {
        /* One at an interrupt window or a forced point is passed within a step. */
        if (next->steps > t->steps)
            return false;
        pass(t, t->steps - next->steps);
        return true;
    }
    if (next->mark.at_sync) {
        /* Interrupt windows and forced points are no steps of their own: they are passed within
         * one. */
        const bool exactly = p->at_sync && next->mark.ordinal == p->ordinal;
        if (known)
            next->steps = exactly ? t->steps : t->steps - 1;
        pass(t, exactly ? 0 : 1);
        return true;
    }
    if (p->cpu->vcpu.regs->rip != next->here.regs[REGISTER_RIP])
        return false;
    struct ahead ahead = {.checkpoint = next, .player = p};
    vcpu_get_sregs(&p->cpu->vcpu, &sregs);
    if (!is_at(&ahead, &p->cpu->vcpu, p->cpu->vcpu.regs, &sregs))
        return false;
    fingerprint_arrive(&p->cpu->vcpu, &next->here);
    if (known)
        next->steps = t->steps;
    pass(t, 0);
    return true;
}

/* Several may be at one place, or be passed by one step. */
static void look_around(struct timeline *t)
{
    while (t->here != t->target && pass_next(t))
        ;
}

/* Whether the forced point where we stand is at the place of a checkpoint, which is before it: it
 * may have been gone to without a look at that. */
static bool is_forced_at(const struct timeline *t, const struct checkpoint *c)
{
    struct player *p = t->player;
    struct ahead ahead = {.checkpoint = c, .player = p};
    struct kvm_sregs sregs;

    if (!p->at_sync || p->ordinal != c->mark.ordinal + 1 || c->repeating ||
        p->cpu->last_sync.kind != EXIT_FORCED)
        return false;
    vcpu_get_sregs(&p->cpu->vcpu, &sregs);
    return is_at(&ahead, &p->cpu->vcpu, p->cpu->vcpu.regs, &sregs);
}

/* We stand at the checkpoint that comes next, or at a forced point that is there, too, and which
 * may have one of its own. */
static int arrive(struct timeline *t, struct err *e)
{
    struct player *p = t->player;

    pass(t, 0);
    if (!p->at_sync)
        return 0;
    struct checkpoint *next = next_checkpoint(t);
    t->steps = STEPS_UNKNOWN;
    if (t->here == t->target)
        return timeline_restore(t, t->here, e);
    if (next && next->mark.at_sync && next->mark.ordinal == p->ordinal) {
        next->steps = 0;
        pass(t, 0);
    }
    return 0;
}

enum timeline_stop timeline_run(struct timeline *t, uint64_t until, struct err *e)
{
    struct player *p = t->player;
    bool arrived;

    for (;;) {
        if (p->at_sync && p->ordinal >= until) {
            const int halfway = player_is_halfway(p, e);
            if (halfway <= 0)
                return halfway < 0 ? TIMELINE_FAILED : TIMELINE_THERE;
        }
        if (t->here == t->target)
            return TIMELINE_THERE;
        if (!was_passed(t, e))
            return TIMELINE_FAILED;
        drop_on_the_way(t);
        struct checkpoint *within = next_within(t);
        const uint64_t slice = p->ordinal + SLICE_SYNCS, next = next_stop(t, within);
        uint64_t limit = slice < until ? slice : until;
        if (next < limit)
            limit = next;
        if (within && p->ordinal + 1 < limit)
            limit = p->ordinal + 1;
        if (run_piece(t, limit, within, &arrived, e) < 0)
            return TIMELINE_FAILED;
        if (arrived || (within && is_forced_at(t, within))) {
            if (arrive(t, e) < 0)
                return TIMELINE_FAILED;
            if (t->here == t->target)
                return TIMELINE_THERE;
            if (breakpoints_hit(&p->stops))
                return TIMELINE_BREAKPOINT;
            continue;
        }
        if (!was_passed(t, e))
            return TIMELINE_FAILED;
        if (within && within == t->target && p->status == PLAYER_DIVERGED) {
            not_found(within, e);
            return TIMELINE_FAILED;
        }
        /* Watched memory has changed right before it. A forced point may be here, too: going on
         * from here leads there at once, and not to the checkpoint. */
        if (p->status == PLAYER_BREAK && !p->at_sync && next_within(t))
            look_around(t);
        const struct checkpoint *ahead = next_checkpoint(t);
        if (p->at_sync && ahead && ahead->mark.at_sync && ahead->mark.ordinal == p->ordinal) {
            pass(t, 0);
            /* A breakpoint there does not count. */
            if (t->here == t->target && p->status == PLAYER_BREAK)
                return TIMELINE_THERE;
        }
        if (p->status != PLAYER_STOPPED)
            return timeline_stop_of(t);
        timeline_add_time(t);
        const bool is_due = t->steps && p->at_sync && t->at_ns - t->here->at_ns > t->spacing_ns;
        const bool interrupted = t->interrupted;
        const int in_middle = is_due || interrupted ? player_is_halfway(p, e) : 0;
        if (in_middle < 0 || (is_due && !in_middle && !timeline_mark(t, STEPS_UNKNOWN, e)))
            return TIMELINE_FAILED;
        if (interrupted && !in_middle) /* a hit that has come of it is not lost */
            return breakpoints_stored(&p->stops) ? TIMELINE_BREAKPOINT : TIMELINE_INTERRUPTED;
    }
}

/* How many iterations of a REP may be done at once, for no checkpoint to be passed unseen. */
static uint64_t up_to_checkpoint(const struct timeline *t, uint64_t most)
{
    const struct checkpoint *next = next_checkpoint(t);
    const struct kvm_regs *regs = t->player->cpu->vcpu.regs;
    uint64_t left = most;

    if (!next || next->mark.ordinal > t->player->ordinal)
        return most;
    if (t->steps != STEPS_UNKNOWN && next->steps != STEPS_UNKNOWN)
        left = next->steps - t->steps;
    else if (next->repeating && next->here.regs[REGISTER_RIP] == regs->rip)
        left = regs->rcx - next->here.regs[REGISTER_RCX];
    return left && left < most ? left : most;
}

enum timeline_stop timeline_leave_sync(struct timeline *t, struct err *e)
{
    struct player *p = t->player;

    look_around(t); /* while it is known that this is a sync point's place */
    if (t->here == t->target)
        return TIMELINE_THERE;
    if (player_leave_sync(p, e) < 0)
        return TIMELINE_FAILED;
    if (p->status != PLAYER_STOPPED)
        return timeline_stop_of(t);
    if (vcpu_event_pending(&p->cpu->vcpu) || vcpu_nmi_pending(&p->cpu->vcpu))
        return TIMELINE_THERE;
    t->left_hit = timeline_at_breakpoint(t);
    look_around(t);
    return TIMELINE_THERE;
}

/* One step, or several iterations of a REP, at most so many. None: t->target is where the sync
 * point was left to. */
static enum timeline_stop steps_at_once(struct timeline *t, uint64_t most, uint64_t *done,
                                        struct err *e)
{
    *done = 0;
    t->left_hit = false;
    if (t->interrupted)
        return TIMELINE_INTERRUPTED;
    if (t->player->at_sync) {
        enum timeline_stop stop = timeline_leave_sync(t, e);
        if (stop != TIMELINE_THERE || t->here == t->target)
            return stop;
    }
    if (player_steps(t->player, up_to_checkpoint(t, most), done, e) < 0)
        return TIMELINE_FAILED;
    if (t->player->status != PLAYER_STOPPED) {
        /* It may have come to a forced point, behind which nothing is executed. */
        if (t->player->status != PLAYER_DIVERGED)
            look_around(t);
        return t->here == t->target ? TIMELINE_THERE : timeline_stop_of(t);
    }
    if (t->steps != STEPS_UNKNOWN)
        t->steps += *done;
    look_around(t);
    return TIMELINE_THERE;
}

/* Not within a REP, which costs nothing to go through again. */
static bool wants_crumb(const struct timeline *t)
{
    return t->steps != STEPS_UNKNOWN && t->steps >= CRUMB_STEPS && !t->player->stops.repeating;
}

enum timeline_stop timeline_steps(struct timeline *t, uint64_t n, struct err *e)
{
    for (uint64_t done; n; n -= done) {
        enum timeline_stop stop = steps_at_once(t, n, &done, e);
        if (stop != TIMELINE_THERE || t->here == t->target)
            return stop;
        if (wants_crumb(t) && !timeline_mark(t, t->steps, e))
            return TIMELINE_FAILED;
    }
    return TIMELINE_THERE;
}

/*
 * At the end nothing can go on from behind the last sync point; and where a run was interrupted
 * between two of them is nowhere in particular. Be at the last place before that can be told.
 */
static enum timeline_stop stay_at_sync(struct timeline *t, enum timeline_stop stop, struct err *e)
{
    uint64_t last = t->player->ordinal;
    struct timeline_stops stops;
    enum timeline_stop way;

    if (timeline_detach(t, &stops, e) < 0)
        return TIMELINE_FAILED;
    do { /* again where the recording ends in the middle of an instruction */
        t->steps = STEPS_UNKNOWN; /* a step at the last sync point has read what is behind it */
        way = timeline_restore(t, t->here, e) < 0 ? TIMELINE_FAILED : TIMELINE_THERE;
        if (way == TIMELINE_THERE && t->here->mark.ordinal < last)
            way = timeline_run(t, last, e);
    } while (way == TIMELINE_END && last--);
    timeline_attach(t, &stops);
    if (way == TIMELINE_INTERRUPTED) { /* once more */
        t->interrupted = false;
        t->steps = STEPS_UNKNOWN;
        return timeline_restore(t, t->here, e) < 0 ? TIMELINE_FAILED : way;
    }
    if (way != TIMELINE_THERE)
        return way;
    return t->steps == 0 || timeline_mark(t, STEPS_UNKNOWN, e) ? stop : TIMELINE_FAILED;
}

/* After running: make the place one that can be told. */
static enum timeline_stop settle(struct timeline *t, enum timeline_stop stop, struct err *e)
{
    t->interrupted = false;
    if (stop == TIMELINE_END ||
        (stop == TIMELINE_INTERRUPTED && t->steps == STEPS_UNKNOWN && !t->player->at_sync))
        return stay_at_sync(t, stop, e);
    if (stop == TIMELINE_DIVERGED) {
        divergence_report(t->player, stderr);
        t->steps = STEPS_UNKNOWN;
        return timeline_restore(t, t->here, e) < 0 ? TIMELINE_FAILED : stop;
    }
    if (stop == TIMELINE_FAILED || t->steps != STEPS_UNKNOWN)
        return stop;
    return timeline_mark(t, STEPS_UNKNOWN, e) ? stop : TIMELINE_FAILED;
}

enum timeline_stop timeline_step_watching(struct timeline *t, uint64_t most, uint64_t *done,
                                          struct err *e)
{
    struct breakpoints *set = &t->player->stops;

    watchpoints_see(set);
    enum timeline_stop stop = steps_at_once(t, most, done, e);
    if (stop == TIMELINE_THERE && wants_crumb(t) && !timeline_mark(t, t->steps, e))
        return TIMELINE_FAILED;
    return stop == TIMELINE_THERE && watchpoints_changed(set) ? TIMELINE_BREAKPOINT : stop;
}

/* A breakpoint where we stand does not count until it is left. */
enum timeline_stop timeline_continue(struct timeline *t, struct err *e)
{
    enum timeline_stop stop = TIMELINE_THERE;
    uint64_t done;

    if (t->changed)
        return timeline_go_changed(t, false, e);
    /* An interrupt never leads to before where one stood. */
    if (t->steps && t->steps != STEPS_UNKNOWN && !timeline_mark(t, t->steps, e))
        return TIMELINE_FAILED;
    if (timeline_at_breakpoint(t))
        stop = timeline_step_watching(t, 1, &done, e);
    return settle(t, stop == TIMELINE_THERE ? timeline_run(t, UINT64_MAX, e) : stop, e);
}

enum timeline_stop timeline_step(struct timeline *t, struct err *e)
{
    uint64_t done;

    return t->changed ? timeline_go_changed(t, true, e)
                      : settle(t, timeline_step_watching(t, 1, &done, e), e);
}

enum timeline_stop timeline_seek(struct timeline *t, uint64_t ordinal, struct err *e)
{
    struct player *p = t->player;
    struct timeline_stops stops;

    if (timeline_undo(t, e) == TIMELINE_FAILED || timeline_bring_in(t, ordinal, e) < 0)
        return TIMELINE_FAILED;
    struct checkpoint *const from = timeline_last_before(t, ordinal);
    const bool ahead = from == t->here && p->ordinal < ordinal;
    if (!ahead && timeline_restore(t, from, e) < 0)
        return TIMELINE_FAILED;
    if (timeline_detach(t, &stops, e) < 0)
        return TIMELINE_FAILED;
    enum timeline_stop stop = settle(t, timeline_run(t, ordinal, e), e);
    timeline_attach(t, &stops);
    return stop;
}
