/*
 * Probes: single steps and each kind of breakpoint.
 */
#include "host/doctor/doctor.h"
#include "vmm/kvm/debug_registers.h"
#include "vmm/kvm/micro_guest.h"

GUEST_CODE(micro_nops, "nop\n"
                       "nop\n"
                       "nop\n" GUEST_DONE);
GUEST_CODE(micro_int3, "nop\n"
                       "int3\n" GUEST_DONE);
GUEST_CODE(micro_nop_hlt, "nop\n"
                          "hlt\n" GUEST_DONE);

static void step(unsigned cpl, struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_nops), cpl, o))
        return;
    for (unsigned i = 1; i <= 3; i++) {
        if (!micro_guest_debug(&g, KVM_GUESTDBG_SINGLESTEP, 0, o) ||
            !micro_guest_expect(&g, EXIT_STEP, 0, o))
            return;
        if (g.vcpu.regs->rip != MICRO_CODE + i) {
            probe_says(o, PROBE_BROKEN, "step %u ended at rip %#llx and not %#x", i,
                       (unsigned long long)g.vcpu.regs->rip, MICRO_CODE + i);
            return;
        }
    }
    probe_says(o, PROBE_OK, "instruction by instruction");
}

static void probe_step_cpl0(struct probe_outcome *o)
{
    step(0, o);
}

static void probe_step_cpl3(struct probe_outcome *o)
{
    step(3, o);
}

static void probe_int3_cpl0(struct probe_outcome *o)
{
    micro_guest_breakpoint(PROGRAM(micro_int3), 0, KVM_GUESTDBG_USE_SW_BP, MICRO_CODE + 1, o);
}

static void probe_int3_cpl3(struct probe_outcome *o)
{
    micro_guest_breakpoint(PROGRAM(micro_int3), 3, KVM_GUESTDBG_USE_SW_BP, MICRO_CODE + 1, o);
}

static void probe_patched_hlt(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_nop_hlt), 0, o) ||
        !micro_guest_expect(&g, EXIT_HLT, 0, o))
        return;
    if (g.vcpu.regs->rip == MICRO_CODE + 2)
        probe_says(o, PROBE_OK, "exits, rip is one behind it");
    else
        probe_says(o, PROBE_BROKEN, "rip is %#llx behind the hlt at %#x",
                   (unsigned long long)g.vcpu.regs->rip, MICRO_CODE + 1);
}

static void probe_user_hlt(struct probe_outcome *o)
{
    struct micro_guest g;

    if (!micro_guest_start(&g, PROGRAM(micro_nop_hlt), 3, o) ||
        !micro_guest_expect(&g, EXIT_PIO_OUT, 13, o))
        return;
    uint64_t rip = micro_guest_pushed_rip(&g, true);
    if (rip == MICRO_CODE + 1 && vcpu_cpl(&g.vcpu) == 0)
        probe_says(o, PROBE_OK, "#GP reaches the guest's handler");
    else
        probe_says(o, PROBE_BROKEN, "#GP at CPL%u says rip %#llx and not %#x", vcpu_cpl(&g.vcpu),
                   (unsigned long long)rip, MICRO_CODE + 1);
}

static const char other_breakpoints[] = "breakpoints are patched hlt instructions";

const struct probe doctor_debug_probes[] = {
    {"single step at CPL0", probe_step_cpl0, true, "this KVM is not used"},
    {"single step at CPL3", probe_step_cpl3, true, "this KVM is not used"},
    {"debug register at CPL0", probe_register_cpl0, false, other_breakpoints},
    {"debug register at CPL3", probe_register_cpl3, false, other_breakpoints},
    {"int3 at CPL0", probe_int3_cpl0, false, other_breakpoints},
    {"int3 at CPL3", probe_int3_cpl3, false, other_breakpoints},
    {"patched hlt at CPL0", probe_patched_hlt, true, "this KVM is not used"},
    {"patched hlt at CPL3", probe_user_hlt, true, "this KVM is not used"},
    {0},
};
