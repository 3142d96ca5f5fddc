/*
 * Probes: counters of this host.
 */
#include "host/doctor/doctor.h"
#include "vmm/points/pmu/pmu_selftest.h"

const struct probe doctor_host_probes[] = {
    {"branch counter for guests", pmu_probe, false,
     "--clock landmark; --clock pmu has so far run against a simulated counter only, never on "
     "hardware"},
    {0},
};
