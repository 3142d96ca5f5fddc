#include "vmm/points/pmu/pmu_land.h"

/* Steps of one landing, some seconds: then it is code without conditional branches, as a long REP,
 * and the rest of the way is searched. */
#define STEPS_MAX 1000000u

/* A landing in progress. */
struct landing {
    struct pmu_target *t;
    uint64_t at;
    const struct landmark *l;
    struct vcpu_exit *exit;
    const atomic_bool *interrupted;
    struct err *e;
};

/* What one part of the way leads to. */
enum progress {
    GO_ON,
    LEAVE, /* *result is the landing's */
};

static enum progress leave(enum clock_landing *result, enum clock_landing with)
{
    *result = with;
    return LEAVE;
}

/* How many branches are left. */
static enum progress measure(struct landing *g, uint64_t *rest, enum clock_landing *result)
{
    uint64_t count;

    if (g->t->counter->ops->read(g->t->counter, &count, g->e) < 0)
        return leave(result, LAND_FAILED);
    if (count > g->at) {
        *g->exit = (struct vcpu_exit){.kind = EXIT_FORCED};
        return leave(result, LAND_MISSED);
    }
    *rest = g->at - count;
    return GO_ON;
}

/* Run, or step, until the next exit of any kind. */
static enum progress advance(struct landing *g, bool step, enum clock_landing *result)
{
    const struct pmu_target_ops *ops = g->t->ops;

    if ((step ? ops->step : ops->run)(g->t, g->exit, g->e) < 0)
        return leave(result, LAND_FAILED);
    g->t->exits++;
    if (*g->interrupted)
        return leave(result, LAND_STOPPED);
    if (g->exit->kind == EXIT_KICK || (step && g->exit->kind == EXIT_STEP))
        return GO_ON;
    return leave(result, LAND_MISSED);
}

/*
 * Let overflows stop the guest until the point is near. Each is set to half of what is left, and
 * the counter then repeats it: so one that is lost is made up for by the next, and one that comes
 * for no reason, or too early, does no harm.
 */
static enum progress approach(struct landing *g, enum clock_landing *result)
{
    const uint64_t near = g->t->skid + 2 * PMU_LEAST_PERIOD;
    struct pmu_counter *counter = g->t->counter;
    uint64_t rest;

    for (;;) {
        if (measure(g, &rest, result) == LEAVE)
            return LEAVE;
        if (rest < near)
            return GO_ON;
        if (counter->ops->arm(counter, (rest - g->t->skid) / 2, g->e) < 0)
            return leave(result, LAND_FAILED);
        if (advance(g, false, result) == LEAVE)
            return LEAVE;
    }
}

/* Step to the point, or up to what cannot be stepped over. Several instructions have the same
 * count: those between two branches. */
static enum progress step_up(struct landing *g, enum clock_landing *result)
{
    uint64_t rest;

    for (unsigned steps = 0; steps < STEPS_MAX; steps++) {
        if (measure(g, &rest, result) == LEAVE)
            return LEAVE;
        if (rest == 0 && g->t->ops->matches(g->t, g->l))
            return leave(result, LANDED);
        if (!g->t->ops->can_step(g->t))
            break;
        if (advance(g, true, result) == LEAVE)
            return LEAVE;
    }
    return GO_ON;
}

enum clock_landing pmu_land(struct pmu_target *t, uint64_t at, const struct landmark *l,
                            struct vcpu_exit *exit, const atomic_bool *interrupted, struct err *e)
{
    struct landing g = {.t = t, .at = at, .l = l, .exit = exit, .interrupted = interrupted, .e = e};
    enum clock_landing result;

    enum progress near = approach(&g, &result);
    if (t->counter->ops->disarm(t->counter, e) < 0)
        return LAND_FAILED;
    if (near == LEAVE || step_up(&g, &result) == LEAVE)
        return result;
    return t->ops->search(t, l, exit, interrupted, e);
}
