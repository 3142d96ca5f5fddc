#include "vmm/points/pmu/pmu_selftest.h"

/* Overflows whose lateness is measured, and after how many branches each comes. */
#define OVERFLOWS       32
#define OVERFLOW_FIRST  2000u
#define OVERFLOW_STRIDE 611u
/* How often overflows stop the third run, in branches: not so often that the kernel throttles. */
#define STOP_PERIOD 5003u

/* What goes on while the micro-guest runs. */
enum disturbance {
    UNDISTURBED,
    HOST_WORKS,
    OVERFLOWS_STOP,
    DISTURBANCES,
};

static int read_both(const struct pmu_trial *t, uint64_t *count, uint64_t *spoilers, struct err *e)
{
    *spoilers = 0;
    if (t->counter->ops->read(t->counter, count, e) < 0)
        return -1;
    return t->spoiler ? t->spoiler->ops->read(t->spoiler, spoilers, e) : 0;
}

static int run_through(struct pmu_trial *t, enum disturbance how, struct err *e)
{
    struct vcpu_exit exit;
    bool finished = false;

    if (how == OVERFLOWS_STOP && t->counter->ops->arm(t->counter, STOP_PERIOD, e) < 0)
        return -1;
    while (!finished) {
        if (t->ops->run(t, &exit, &finished, e) < 0)
            return -1;
        if (how == HOST_WORKS)
            t->ops->work(t);
    }
    return how == OVERFLOWS_STOP ? t->counter->ops->disarm(t->counter, e) : 0;
}

static int count_once(struct pmu_trial *t, enum disturbance how, struct err *e)
{
    static const char *const while_text[DISTURBANCES] = {
        [UNDISTURBED] = "",
        [HOST_WORKS] = " while the host works (exclude_host does not hold)",
        [OVERFLOWS_STOP] = " while overflows stop it",
    };
    uint64_t before, after, spoilers_before, spoilers;

    if (t->ops->start(t, e) < 0 || read_both(t, &before, &spoilers_before, e) < 0 ||
        run_through(t, how, e) < 0 || read_both(t, &after, &spoilers, e) < 0)
        return -1;
    if (spoilers != spoilers_before)
        return err_set(e, STATUS_ERROR, "counts are not exact on this CPU: %s", t->event->cure);
    if (after - before == t->branches)
        return 0;
    return err_set(e, STATUS_ERROR, "a guest with %llu conditional branches counts %llu%s",
                   (unsigned long long)t->branches, (unsigned long long)(after - before),
                   while_text[how]);
}

/* Let one overflow come, `period` branches from the beginning. */
static int overflow_once(struct pmu_trial *t, uint64_t period, struct err *e)
{
    struct vcpu_exit exit;
    uint64_t before, after;
    bool finished = false;

    if (t->ops->start(t, e) < 0 || t->counter->ops->read(t->counter, &before, e) < 0 ||
        t->counter->ops->arm(t->counter, period, e) < 0)
        return -1;
    do {
        if (t->ops->run(t, &exit, &finished, e) < 0 ||
            t->counter->ops->read(t->counter, &after, e) < 0)
            return -1;
        /* A kick in the first half is none of this overflow's. */
    } while (!finished && (exit.kind != EXIT_KICK || after - before < period / 2));
    if (t->counter->ops->disarm(t->counter, e) < 0)
        return -1;
    if (finished)
        return err_set(e, STATUS_ERROR, "an overflow of the counter does not stop the guest");
    uint64_t late = after - before > period ? after - before - period : 0;
    t->latest = late > t->latest ? late : t->latest;
    if (late > t->event->skid)
        return err_set(e, STATUS_ERROR,
                       "an overflow stops the guest %llu branches late; on %s it should be %llu at "
                       "most",
                       (unsigned long long)late, t->event->name,
                       (unsigned long long)t->event->skid);
    return 0;
}

int pmu_selftest(struct pmu_trial *t, struct err *e)
{
    t->latest = 0;
    for (enum disturbance how = UNDISTURBED; how < DISTURBANCES; how++)
        if (count_once(t, how, e) < 0)
            return -1;
    for (unsigned i = 0; i < OVERFLOWS; i++)
        if (overflow_once(t, OVERFLOW_FIRST + i * OVERFLOW_STRIDE, e) < 0)
            return -1;
    return 0;
}
