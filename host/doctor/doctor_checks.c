/* What commands ask doctor before they begin. */
#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "host/doctor/doctor.h"

#define QUICK_LIMIT_MS   1000
#define CPUID_HYPERVISOR 0x40000000u

/* QEMU's CPU (TCG) says so in the leaf where hypervisors give their names. */
static bool cpu_is_qemus(void)
{
    unsigned name[3] = {0}, max;

    __cpuid(CPUID_HYPERVISOR, max, name[0], name[1], name[2]);
    return memcmp(name, "TCGTCGTCGTCG", sizeof name) == 0;
}

static const char *look_for_doubt(void)
{
    struct probe_outcome o;

    if (cpu_is_qemus()) {
        isolated_run(probe_setcc, QUICK_LIMIT_MS, &o);
        if (o.result != PROBE_OK)
            return "this emulated CPU loses the flags of a SETcc whose store faults, which "
                   "programs do not expect; 'make khost-qemu' builds a QEMU that keeps them";
        isolated_run(probe_rcl, QUICK_LIMIT_MS, &o);
        if (o.result != PROBE_OK)
            return "this emulated CPU loses the flags of an RCL or RCR that faults; 'make "
                   "khost-qemu' builds a QEMU that keeps them";
        isolated_run(probe_cmpxchg, QUICK_LIMIT_MS, &o);
        if (o.result != PROBE_OK)
            return "this emulated CPU loses the flags behind a CMPXCHG16B, where a breakpoint may "
                   "be; 'make khost-qemu' builds a QEMU that keeps them";
        isolated_run(probe_guest_breakpoint, QUICK_LIMIT_MS, &o);
        if (o.result != PROBE_OK)
            return "this emulated CPU notices a guest's own breakpoints (DR7) by chance; 'make "
                   "khost-qemu' builds a QEMU that always does";
    }
    isolated_run(probe_x87_pointers, QUICK_LIMIT_MS, &o);
    return o.result == PROBE_MISSING
               ? "this CPU loses the x87 unit's instruction and data pointers when it exits, which "
                 "a program may store (FNSTENV)"
               : NULL;
}

const char *doctor_cpu_doubt(void)
{
    static const char *doubt;
    static bool looked;

    if (!looked)
        doubt = look_for_doubt();
    looked = true;
    return doubt;
}

const char *doctor_hidden_instructions(void)
{
    static const struct {
        const char *name;
        void (*probe)(struct probe_outcome *);
    } hidden[] = {
        {"RDTSCP", probe_rdtscp}, {"RDRAND", probe_rdrand}, {"RDSEED", probe_rdseed},
        {"RDPID", probe_rdpid},   {"XBEGIN", probe_xbegin},
    };
    static char names[64];
    static bool looked;
    size_t len = 0;

    if (looked)
        return names;
    looked = true;
    for (unsigned i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        struct probe_outcome o;
        isolated_run(hidden[i].probe, QUICK_LIMIT_MS, &o);
        if (o.result == PROBE_MISSING)
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", len ? ", " : "",
                                    hidden[i].name);
    }
    return names;
}

int doctor_quick_check(struct err *e)
{
    struct probe_outcome o;

    isolated_run(probe_real_guest, QUICK_LIMIT_MS, &o);
    if (o.result == PROBE_OK)
        return 0;
    if (o.result == PROBE_MISSING)
        return err_set(e, STATUS_ERROR, "%s", o.detail);
    return err_set(e, STATUS_ERROR,
                   "this /dev/kvm cannot run real guests (SYSCALL from CPL3: %s); give "
                   "--host emulated, and see 'dittovm doctor'",
                   o.detail);
}
