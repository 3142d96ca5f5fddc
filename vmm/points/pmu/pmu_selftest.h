#ifndef VMM_POINTS_PMU_PMU_SELFTEST_H
#define VMM_POINTS_PMU_PMU_SELFTEST_H

#include "vmm/points/pmu/pmu_counter.h"

/*
 * Whether a branch counter can be relied on: the same micro-guest counts the same three times, the
 * second time while the host works, the third time while overflows stop the guest; and overflows
 * are no later than the skid. What runs is behind functions, so that it can be tested against a
 * simulated CPU.
 */
struct pmu_trial;
struct pmu_trial_ops {
    /* Put the micro-guest at its beginning. */
    int (*start)(struct pmu_trial *t, struct err *e);
    /* Run it to its next exit. *finished: it has come to its end. */
    int (*run)(struct pmu_trial *t, struct vcpu_exit *exit, bool *finished, struct err *e);
    /* Retire some thousand conditional branches on the host. */
    void (*work)(struct pmu_trial *t);
};
struct pmu_trial {
    const struct pmu_trial_ops *ops;
    const struct pmu_event *event;
    struct pmu_counter *counter;
    struct pmu_counter *spoiler; /* counts event->spoiler; NULL when there is none */
    uint64_t branches;           /* what the micro-guest retires from its beginning to its end */
    uint64_t latest;             /* found: how late an overflow was, at most */
};

/* 0, or -1 and why the counter is not to be used. */
int pmu_selftest(struct pmu_trial *t, struct err *e);

/* The event of this CPU. NULL, with the reason: there is none, or the kernel is not set up for it.
 */
const struct pmu_event *pmu_event_here(struct err *e);

/* Find everything out on this machine, with a VM and a counter of its own in a child process of at
 * most some seconds. -1: why not. */
int pmu_selftest_isolated(struct err *e);

struct probe_outcome;
/* The same in this process, which must end soon after: for doctor. */
void pmu_probe(struct probe_outcome *o);

#endif
