/*
 * The reference clock: every instruction is stepped (vmm/points/stepper.h) and every retired
 * conditional branch counted. Some thousand times slower than the guest's own speed, but exact
 * everywhere: it shows whether the other clocks are.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "vmm/points/clock.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/stepper.h"

static int open_clock(struct clock *c, struct err *e)
{
    struct stepper *stepper = malloc(sizeof *stepper);

    if (!stepper)
        return err_set(e, STATUS_ERROR, "out of memory");
    stepper_init(stepper, c->vcpu);
    c->own = stepper;
    return 0;
}

static void close_clock(struct clock *c)
{
    free(c->own);
}

static int step(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    struct step step;

    /* The first instructions of a CPU: no branch of theirs is counted, when they are recorded nor
     * when they are replayed. */
    if (!stepper_can(c->own))
        return vcpu_run_step(c->vcpu, exit, e);
    if (stepper_step(c->own, &step, exit, e) < 0)
        return -1;
    c->branches += step.branches;
    if (step.kind == STEP_DONE || step.kind == STEP_ENTRY)
        exit->kind = EXIT_STEP;
    return 0;
}

static int run(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    if (c->replaying)
        return vcpu_run(c->vcpu, exit, e);
    do {
        if (step(c, exit, e) < 0)
            return -1;
    } while (exit->kind == EXIT_STEP);
    return 0;
}

static void sync(struct clock *c)
{
    stepper_close(c->own);
    c->branches = 0;
}

/* Any place will do for this clock; that others find it too is tried for. */
static enum clock_choice choose(struct clock *c, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    struct clock_host anywhere = *host;

    anywhere.effort = CLOCK_ANY_PLACE;
    return clock_choose_near(c, &anywhere, landmark, exit, e);
}

static bool is_there(struct clock *c, const struct landmark *l)
{
    struct kvm_sregs sregs;

    if (c->vcpu->regs->rip != l->regs[REGISTER_RIP] || (l->counted && c->branches != l->branches) ||
        !vcpu_is_settled(c->vcpu))
        return false;
    vcpu_get_sregs(c->vcpu, &sregs);
    return fingerprint_matches(c->vcpu, c->vcpu->regs, &sregs, l);
}

static enum clock_landing search(struct clock *c, const struct landmark *landmark,
                                 struct vcpu_exit *exit, const atomic_bool *interrupted,
                                 struct err *e)
{
    if (stepper_can(c->own) && stepper_open(c->own, e) < 0)
        return LAND_FAILED;
    while (!is_there(c, landmark)) {
        if (*interrupted)
            return LAND_STOPPED;
        if (step(c, exit, e) < 0)
            return LAND_FAILED;
        c->stats.exits++;
        if ((exit->kind != EXIT_STEP && exit->kind != EXIT_KICK) ||
            (landmark->counted && c->branches > landmark->branches))
            return LAND_MISSED;
    }
    return LANDED;
}

static enum clock_landing land(struct clock *c, const struct landmark *landmark,
                               struct vcpu_exit *exit, const atomic_bool *interrupted,
                               struct err *e)
{
    c->stats.landings++;
    enum clock_landing result = search(c, landmark, exit, interrupted, e);
    if (result != LANDED)
        stepper_close(c->own);
    return result;
}

const struct clock_ops clock_step = {
    .name = "step",
    .description = "every instruction is stepped and every branch counted; exact, and very slow",
    .only_asked_for = true,
    .counts = true,
    .steps_only = true,
    .open = open_clock,
    .close = close_clock,
    .run = run,
    .step = step,
    .sync = sync,
    .choose = choose,
    .land = land,
};
