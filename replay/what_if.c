/* Changing what was recorded, and seeing what comes of it: see timeline_change(). */
#include "replay/timeline.h"

#include "vmm/points/watchpoint.h"

int timeline_change(struct timeline *t, struct err *e)
{
    if (t->changed)
        return 0;
    if (t->steps == STEPS_UNKNOWN)
        return err_set(e, STATUS_ERROR, "nothing can be changed here: go to a sync point first");
    if (t->steps && !timeline_mark(t, t->steps, e))
        return -1;
    t->changed = t->player->changed = true;
    t->moved = false;
    return 0;
}

enum timeline_stop timeline_undo(struct timeline *t, struct err *e)
{
    const bool moved = t->moved;

    if (!t->changed)
        return TIMELINE_THERE;
    if (timeline_restore(t, t->here, e) < 0)
        return TIMELINE_FAILED;
    return moved ? TIMELINE_UNDONE : TIMELINE_THERE;
}

/* Leave the instruction where we stand. */
static enum timeline_stop step(struct timeline *t, struct err *e)
{
    struct breakpoints *set = &t->player->stops;

    watchpoints_see(set);
    if (player_step(t->player, e) < 0)
        return TIMELINE_FAILED;
    if (t->player->status == PLAYER_STOPPED && watchpoints_changed(set))
        return TIMELINE_BREAKPOINT;
    return timeline_stop_of(t);
}

/* Without checkpoints: those of the timeline are places of the recording. */
static enum timeline_stop go(struct timeline *t, bool once, struct err *e)
{
    struct player *p = t->player;
    enum timeline_stop stop = TIMELINE_THERE;
    struct kvm_sregs sregs;

    if (p->status == PLAYER_ENDED || p->status == PLAYER_CUT || p->status == PLAYER_DIVERGED)
        return timeline_stop_of(t);
    t->moved = true;
    t->steps = STEPS_UNKNOWN;
    vcpu_get_sregs(&p->cpu->vcpu, &sregs);
    if (once || breakpoints_look(&p->stops, p->cpu->vcpu.regs, &sregs))
        stop = step(t, e);
    if (once || stop != TIMELINE_THERE)
        return stop;
    return player_run_to_place(p, UINT64_MAX, e) < 0 ? TIMELINE_FAILED : timeline_stop_of(t);
}

enum timeline_stop timeline_go_changed(struct timeline *t, bool once, struct err *e)
{
    /* Of an earlier run; of this one t->interrupted knows. */
    t->player->interrupted = false;
    enum timeline_stop stop = go(t, once, e);

    t->interrupted = false;
    return stop;
}
