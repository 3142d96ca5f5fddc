/*
 * Event numbers: Intel SDM volume 3, chapter 20 (BR_INST_RETIRED.CONDITIONAL, .COND) and AMD's PPRs
 * (PMCx0D1, retired conditional branch instructions; PMCx025, retired lock instructions). Which
 * models have which, and how late an overflow may come: the table of the debugger rr
 * (src/PerfCounters.cc, src/PerfCounters_x86.h), which its users have tried for years. On Zen rr
 * knows no upper bound: its 10000 are exceeded in rare cases.
 */
#include "vmm/points/pmu/pmu_events.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#define COND_2008 0x01c4        /* Nehalem to Comet Lake */
#define COND_2019 0x11c4        /* from Ice Lake on */
#define COND_2024 0x100000011c4 /* Lion Cove: a second byte of unit mask, in bits 40 to 47 */
#define COND_ATOM 0x7ec4
#define COND_ZEN  0x00d1
#define LOCKS_ZEN 0x0825 /* locked instructions that were executed speculatively (SpecLockMap) */

#define MODELS 8

struct pmu_family {
    const char *vendor;
    unsigned family;
    struct pmu_event event;
    uint8_t model[MODELS]; /* ended by 0; none: every model of the family */
};

/* clang-format off */
#define INTEL(text, config, late, frozen, ...)                                                     \
    {"GenuineIntel", 6, {text, config, late, 0, NULL, frozen}, {__VA_ARGS__}}
#define ZEN(text, number)                                                                          \
    {"AuthenticAMD", number, {text, COND_ZEN, 10000, LOCKS_ZEN, ZEN_CURE, false}, {0}}
/* clang-format on */
#define ZEN_CURE                                                                                   \
    "SpecLockMap is on; https://github.com/rr-debugger/rr/wiki/Zen says how to turn it off"

static const struct pmu_family families[] = {
    INTEL("Intel Nehalem", COND_2008, 100, false, 0x1a, 0x1e, 0x2e),
    INTEL("Intel Westmere", COND_2008, 100, false, 0x25, 0x2c, 0x2f),
    INTEL("Intel Sandy Bridge", COND_2008, 100, false, 0x2a, 0x2d),
    INTEL("Intel Ivy Bridge", COND_2008, 100, false, 0x3a, 0x3e),
    INTEL("Intel Haswell", COND_2008, 100, false, 0x3c, 0x3f, 0x45, 0x46),
    INTEL("Intel Broadwell", COND_2008, 100, false, 0x3d, 0x47, 0x4f, 0x56),
    INTEL("Intel Skylake", COND_2008, 100, false, 0x4e, 0x55, 0x5e),
    INTEL("Intel Kaby Lake", COND_2008, 100, false, 0x8e, 0x9e),
    INTEL("Intel Comet Lake", COND_2008, 100, true, 0xa5, 0xa6),
    INTEL("Intel Ice Lake", COND_2019, 100, true, 0x6a, 0x7e),
    INTEL("Intel Tiger Lake", COND_2019, 100, true, 0x8c, 0x8d),
    INTEL("Intel Rocket Lake", COND_2019, 100, true, 0xa7),
    INTEL("Intel Alder Lake", COND_2019, 125, true, 0x97, 0x9a),
    INTEL("Intel Raptor Lake", COND_2019, 125, true, 0xb7, 0xba, 0xbf),
    INTEL("Intel Sapphire Rapids", COND_2019, 125, true, 0x8f),
    INTEL("Intel Emerald Rapids", COND_2019, 125, true, 0xcf),
    INTEL("Intel Meteor Lake", COND_2019, 125, true, 0xaa),
    INTEL("Intel Lunar Lake", COND_2024, 125, true, 0xbd),
    INTEL("Intel Arrow Lake", COND_2024, 125, true, 0xc6),
    INTEL("Intel Silvermont", COND_ATOM, 100, false, 0x37, 0x4c, 0x57),
    INTEL("Intel Goldmont", COND_ATOM, 100, false, 0x5c, 0x5f, 0x7a),
    INTEL("Intel Tremont", COND_ATOM, 100, false, 0x9c),
    ZEN("AMD Zen, Zen+ or Zen 2", 0x17),
    ZEN("AMD Zen 3 or Zen 4", 0x19),
    ZEN("AMD Zen 5", 0x1a),
};

struct pmu_cpu pmu_cpu_of(const char *vendor, uint32_t signature)
{
    struct pmu_cpu cpu = {.family = signature >> 8 & 0xf, .model = signature >> 4 & 0xf};

    snprintf(cpu.vendor, sizeof cpu.vendor, "%s", vendor);
    /* Intel SDM volume 2, CPUID: the extended model counts for families 6 and 15 only. */
    if (cpu.family == 6 || cpu.family == 15)
        cpu.model |= signature >> 12 & 0xf0;
    if (cpu.family == 15)
        cpu.family += signature >> 20 & 0xff;
    return cpu;
}

struct pmu_cpu pmu_cpu_here(void)
{
    unsigned a, b, c, d;
    char vendor[13] = "";

    if (!__get_cpuid(0, &a, &b, &c, &d))
        return pmu_cpu_of(vendor, 0);
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    return pmu_cpu_of(vendor, __get_cpuid(1, &a, &b, &c, &d) ? a : 0);
}

static bool has_model(const struct pmu_family *f, unsigned model)
{
    if (!f->model[0])
        return true;
    for (unsigned i = 0; i < MODELS && f->model[i]; i++)
        if (f->model[i] == model)
            return true;
    return false;
}

const struct pmu_event *pmu_event_find(const struct pmu_cpu *cpu, struct err *e)
{
    for (unsigned i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].vendor, cpu->vendor) && families[i].family == cpu->family &&
            has_model(&families[i], cpu->model))
            return &families[i].event;
    err_set(e, STATUS_ERROR,
            "no event that counts conditional branches exactly is known for this CPU (%s, family "
            "%u, model %u)",
            cpu->vendor, cpu->family, cpu->model);
    return NULL;
}
