/* Single steps of a replay: see player_step() in replay/player.h. */
#include "replay/player_inside.h"
#include "vmm/points/fingerprint.h"

static bool is_at(struct player *p, const struct landmark *l)
{
    struct vcpu *vcpu = &p->cpu->vcpu;
    struct kvm_sregs sregs;

    if (vcpu->regs->rip != l->regs[REGISTER_RIP] || !vcpu_is_settled(vcpu))
        return false;
    vcpu_get_sregs(vcpu, &sregs);
    const struct landmark place = player_place(p, l);
    return fingerprint_matches(vcpu, vcpu->regs, &sregs, &place);
}

/* What happens here, up to a forced point. */
static int apply_events(struct player *p, struct err *e)
{
    while (p->status == PLAYER_RUNNING) {
        if (player_fetch(p, e) < 0)
            return -1;
        if (!p->has_next || p->next.ordinal != p->ordinal || p->next.kind == EVENT_FORCED)
            return 0;
        player_settle(p);
        int rc = player_apply(p, &p->next, e);
        player_consume(p);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Everything that happens here, before the next instruction. */
static int apply_here(struct player *p, struct err *e)
{
    const struct vcpu_exit forced = {.kind = EXIT_FORCED};

    for (;;) {
        if (apply_events(p, e) < 0)
            return -1;
        if (p->status != PLAYER_RUNNING || !p->has_next || p->next.ordinal != p->ordinal ||
            !is_at(p, &p->next.landmark))
            return 0;
        fingerprint_arrive(&p->cpu->vcpu, &p->next.landmark);
        player_consume(p);
        if (player_check(p, &forced, e) < 0)
            return -1;
    }
}

/* Before it goes on. */
static void set_running(struct player *p)
{
    if (p->status == PLAYER_STOPPED || p->status == PLAYER_BREAK)
        p->status = PLAYER_RUNNING;
}

int player_leave_sync(struct player *p, struct err *e)
{
    set_running(p);
    if (apply_events(p, e) < 0 || player_finish_exit(p, e) < 0)
        return -1;
    breakpoints_forget_stores(&p->stops); /* who steps looks himself */
    if (p->status == PLAYER_RUNNING) {
        p->at_sync = false;
        p->status = PLAYER_STOPPED;
    }
    return 0;
}

/* What a step has led to. *again: nothing was executed. */
static int conclude(struct player *p, const struct step *step, struct vcpu_exit *exit, uint64_t rip,
                    bool *again, struct err *e)
{
    struct vcpu *vcpu = &p->cpu->vcpu;

    *again = false;
    if (step->kind == STEP_KICK) {
        *again = !(p->changed && p->interrupted); /* what was recorded comes to its end */
        p->interrupted = false;
        return 0;
    }
    if (step->kind != STEP_EXIT)
        return 0;
    player_settle(p);
    gphook_arrive(vcpu, &p->hook, exit, &p->cpu->trap);
    if (player_take_exit(p, exit, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    *again = exit->kind == EXIT_WINDOW && vcpu->regs->rip == rip;
    if (vcpu_complete(vcpu, e) < 0)
        return -1;
    *again |= vcpu_is_halfway(vcpu);
    return 0;
}

/* Iterations of a REP in software, where no forced point can be among them. */
static uint64_t repeat(struct player *p, uint64_t most)
{
    if (most < 2 || vcpu_is_halfway(&p->cpu->vcpu) ||
        (p->has_next && p->next.kind == EVENT_FORCED &&
         p->next.landmark.regs[REGISTER_RIP] == p->cpu->vcpu.regs->rip))
        return 0;
    return breakpoints_repeat(&p->stops, &p->cpu->stepper, most);
}

int player_steps(struct player *p, uint64_t most, uint64_t *done, struct err *e)
{
    struct vcpu_exit exit;
    struct step step;
    bool again = true;

    *done = 1;
    set_running(p);
    if (breakpoints_rest(&p->stops, e) < 0)
        return -1;
    while (again) {
        if (apply_here(p, e) < 0)
            return -1;
        breakpoints_forget_stores(&p->stops);
        const uint64_t rip = p->cpu->vcpu.regs->rip;
        if (p->status != PLAYER_RUNNING)
            return 0;
        if (!stream_left(p->stream[STREAM_SYNCS])) {
            p->status = PLAYER_CUT;
            return 0;
        }
        p->at_sync = false;
        const uint64_t repeated = repeat(p, most);
        if (repeated) {
            *done = repeated;
            break;
        }
        p->stops.repeating = false;
        if (stepper_step(&p->cpu->stepper, &step, &exit, e) < 0 ||
            conclude(p, &step, &exit, rip, &again, e) < 0)
            return -1;
        if (p->status != PLAYER_RUNNING)
            return 0;
        p->stops.repeating = step.repeats;
    }
    p->status = PLAYER_STOPPED;
    return 0;
}

int player_step(struct player *p, struct err *e)
{
    uint64_t done;

    return player_steps(p, 1, &done, e);
}
