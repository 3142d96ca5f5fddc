#ifndef VMM_POINTS_PMU_PMU_COUNTER_H
#define VMM_POINTS_PMU_PMU_COUNTER_H

#include "vmm/kvm/vcpu.h"
#include "vmm/points/pmu/pmu_events.h"

/*
 * A counter of branches that retire in guest mode. It runs from its opening on and is never reset;
 * it counts up. Overflows only ask for a stop: what has been counted does not depend on them.
 */
struct pmu_counter;
struct pmu_counter_ops {
    /* -1 when it has not counted all the time. */
    int (*read)(struct pmu_counter *c, uint64_t *count, struct err *e);
    /* Kick the vCPU `period` branches from now, and again after every further `period`. At least
     * PMU_LEAST_PERIOD; it may come late by the skid, a little early, or be lost. */
    int (*arm)(struct pmu_counter *c, uint64_t period, struct err *e);
    /* No more kicks, but for one that is on its way. */
    int (*disarm)(struct pmu_counter *c, struct err *e);
    void (*close)(struct pmu_counter *c);
};
struct pmu_counter {
    const struct pmu_counter_ops *ops;
};

/* Shorter periods are refused or rounded by kernels for some CPUs (Broadwell: 128). */
#define PMU_LEAST_PERIOD 128

/* The counter of perf_event_open(2). */
struct pmu_perf {
    struct pmu_counter counter;
    int fd;
    struct vcpu *kicks; /* at an overflow; NULL: it is never armed */
};

/*
 * Count a raw event while the calling thread runs a guest. Kicks go to vcpu, which must outlive the
 * counter; of a thread's counters the one that was armed last kicks. NULL: it is never armed. -1,
 * with the reason, when this host does not have it.
 */
int pmu_perf_open(struct pmu_perf *p, uint64_t raw, struct vcpu *vcpu, struct err *e);

/* Whether the kernel keeps SMM's branches out of the counts; true where it does not say. */
bool pmu_perf_frozen_on_smi(void);

#endif
