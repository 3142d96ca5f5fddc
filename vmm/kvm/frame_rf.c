#include "vmm/kvm/frame_rf.h"

#include <assert.h>
#include <string.h>

#include "vmm/kvm/micro_guest.h"

/* On Bochs, on a busy machine. */
#define PROBE_MS 5000

/* #DE, which no KVM intercepts: what KVM injects has RF as KVM sets it. */
GUEST_CODE(micro_divide, "xor %ecx, %ecx\n"
                         "div %ecx\n" GUEST_DONE);
GUEST_CODE(micro_wait, "sti\n"
                       "hlt\n" GUEST_DONE);

static const char *const names[FRAME_RFS] = {
    [FRAME_RF_UNKNOWN] = "unknown",
    [FRAME_RF_FAULTS] = "faults",
    [FRAME_RF_NONE] = "none",
    [FRAME_RF_ALL] = "all",
};

static const char *const details[FRAME_RFS] = {
    [FRAME_RF_FAULTS] = "set in the frames of faults",
    [FRAME_RF_NONE] = "never set in a frame",
    [FRAME_RF_ALL] = "set in the frames of interrupts, too",
};

/* RF of a frame without an error code, in its handler. */
static bool frame_has_rf(const struct micro_guest *g)
{
    const uint64_t *flags =
        guest_memory_at(&g->vm.memory, g->vcpu.regs->rsp + 2 * sizeof(uint64_t), sizeof *flags);

    return flags && *flags & RFLAGS_RF;
}

void probe_frame_rf(struct probe_outcome *o)
{
    struct micro_guest fault, wait;

    if (!micro_guest_start(&fault, PROGRAM(micro_divide), 0, o) ||
        !micro_guest_expect(&fault, EXIT_PIO_OUT, 0, o) ||
        !micro_guest_start(&wait, PROGRAM(micro_wait), 0, o) ||
        !micro_guest_expect(&wait, EXIT_HLT, 0, o))
        return;
    vcpu_inject(&wait.vcpu, 0x30);
    if (!micro_guest_expect(&wait, EXIT_PIO_OUT, 0x30, o))
        return;
    if (frame_has_rf(&wait))
        probe_says(o, PROBE_BROKEN, "%s", details[FRAME_RF_ALL]);
    else if (frame_has_rf(&fault))
        probe_says(o, PROBE_OK, "%s", details[FRAME_RF_FAULTS]);
    else
        probe_says(o, PROBE_MISSING, "%s", details[FRAME_RF_NONE]);
}

enum frame_rf frame_rf_here(void)
{
    static enum frame_rf here;
    struct probe_outcome o;

    if (here != FRAME_RF_UNKNOWN)
        return here;
    isolated_run(probe_frame_rf, PROBE_MS, &o);
    for (enum frame_rf i = FRAME_RF_FAULTS; i < FRAME_RFS; i++)
        if (!strcmp(o.detail, details[i]))
            here = i;
    return here;
}

const char *frame_rf_name(enum frame_rf rf)
{
    assert(rf < FRAME_RFS);
    return names[rf];
}

enum frame_rf frame_rf_named(const char *name)
{
    for (enum frame_rf i = FRAME_RF_FAULTS; name && i < FRAME_RFS; i++)
        if (!strcmp(name, names[i]))
            return i;
    return FRAME_RF_UNKNOWN;
}
