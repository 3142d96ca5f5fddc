/*
 * Probes: counters of this host.
 */
#include <cpuid.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/doctor_guest.h"

GUEST_CODE(micro_branches, "mov $100000, %ecx\n"
                           "1: dec %ecx\n"
                           "jnz 1b\n" GUEST_DONE);
#define BRANCHES 100000

/* Retired conditional branches: Intel SDM volume 3, chapter 20 (BR_INST_RETIRED.CONDITIONAL); AMD
 * PPR, PMCx0D1. 0 where the vendor is another one. */
static uint64_t branch_event(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(0, &a, &b, &c, &d))
        return 0;
    if (b == signature_INTEL_ebx)
        return 0x1c4;
    return b == signature_AMD_ebx ? 0xd1 : 0;
}

static int open_counter(void)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_RAW,
        .size = sizeof attr,
        .config = branch_event(),
        .disabled = 1,
        .pinned = 1,
        .exclude_host = 1,
        .exclude_hv = 1,
    };

    if (!attr.config) {
        errno = ENODEV;
        return -1;
    }
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static bool count_once(int counter, uint64_t *count, struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_branches), 0, o))
        return false;
    if (ioctl(counter, PERF_EVENT_IOC_RESET, 0) < 0 || ioctl(counter, PERF_EVENT_IOC_ENABLE, 0) < 0)
        goto failed;
    bool finished = micro_guest_finish(&g, o);
    if (ioctl(counter, PERF_EVENT_IOC_DISABLE, 0) < 0)
        goto failed;
    if (!finished)
        return false;
    if (read(counter, count, sizeof *count) == (ssize_t)sizeof *count)
        return true;
failed:
    probe_says(o, PROBE_MISSING, "the counter cannot be used: %s", strerror(errno));
    return false;
}

static void probe_counter(struct probe_outcome *o)
{
    int counter = open_counter();

    if (counter < 0) {
        const char *why = errno == EACCES || errno == EPERM
                              ? "not permitted; see /proc/sys/kernel/perf_event_paranoid"
                              : strerror(errno);
        probe_says(o, PROBE_MISSING, "perf_event_open: %s", why);
        return;
    }
    for (unsigned i = 0; i < 5; i++) {
        uint64_t count = 0;
        if (!count_once(counter, &count, o))
            return;
        if (count != BRANCHES) {
            probe_says(o, PROBE_BROKEN, "a guest with %d branches counts %llu", BRANCHES,
                       (unsigned long long)count);
            return;
        }
    }
    probe_says(o, PROBE_OK, "exact in 5 of 5 runs");
}

const struct probe doctor_host_probes[] = {
    {"branch counter for guests", probe_counter, false,
     "forced points are found by registers and memory"},
    {0},
};
