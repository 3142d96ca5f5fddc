#ifndef VMM_POINTS_PMU_PMU_LAND_H
#define VMM_POINTS_PMU_PMU_LAND_H

#include <stdatomic.h>

#include "vmm/points/clock.h"
#include "vmm/points/pmu/pmu_counter.h"

/*
 * Landing on a forced point with a branch counter: overflows, timed so that none can come behind
 * the point even when it is late by the skid, bring the guest near, and single steps bring it
 * there. What runs the guest is behind functions, so that all this can be tested against a
 * simulated CPU.
 */
struct pmu_target;
struct pmu_target_ops {
    /* As clock_ops.run and clock_ops.step have it, but for the counting. */
    int (*run)(struct pmu_target *t, struct vcpu_exit *exit, struct err *e);
    int (*step)(struct pmu_target *t, struct vcpu_exit *exit, struct err *e);
    /* Whether a step over the next instruction leaves no trace in the guest. */
    bool (*can_step)(struct pmu_target *t);
    bool (*matches)(struct pmu_target *t, const struct landmark *l);
    /* Run to the next place that matches, without steps and not minding the counter. */
    enum clock_landing (*search)(struct pmu_target *t, const struct landmark *l,
                                 struct vcpu_exit *exit, const atomic_bool *interrupted,
                                 struct err *e);
};
struct pmu_target {
    const struct pmu_target_ops *ops;
    struct pmu_counter *counter;
    uint64_t skid;  /* branches that an overflow may be late by */
    uint64_t exits; /* from guest mode, while landing */
};

/*
 * Run to the landmark, where the counter reads `at`. LAND_MISSED: the guest came to a sync point
 * first, or behind the point: *exit is then of kind EXIT_FORCED.
 */
enum clock_landing pmu_land(struct pmu_target *t, uint64_t at, const struct landmark *l,
                            struct vcpu_exit *exit, const atomic_bool *interrupted, struct err *e);

#endif
