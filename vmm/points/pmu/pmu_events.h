#ifndef VMM_POINTS_PMU_PMU_EVENTS_H
#define VMM_POINTS_PMU_PMU_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What counts retired conditional branches, by kind of CPU. */
struct pmu_event {
    const char *name;      /* of the microarchitecture */
    uint64_t raw;          /* perf_event_attr.config of PERF_TYPE_RAW */
    uint64_t skid;         /* branches that retire at most before an overflow stops the CPU */
    uint64_t spoiler;      /* raw event that must not happen, or counts are not exact; 0: none */
    const char *cure;      /* what to do when it happens */
    bool needs_smi_freeze; /* SMM is counted unless the kernel is told otherwise */
};

/* A CPU as CPUID leaves 0 and 1 describe it. */
struct pmu_cpu {
    char vendor[13];        /* "GenuineIntel" */
    unsigned family, model; /* with the extended fields, as in /proc/cpuinfo */
};

/* From leaf 0's text and leaf 1's EAX. */
struct pmu_cpu pmu_cpu_of(const char *vendor, uint32_t signature);
/* The CPU that this runs on. */
struct pmu_cpu pmu_cpu_here(void);

/* The event of a CPU; NULL, with the reason, when none is known that can be relied on. */
const struct pmu_event *pmu_event_find(const struct pmu_cpu *cpu, struct err *e);

#endif
