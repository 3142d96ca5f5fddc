#include "vmm/kvm/debug_registers.h"

#include "vmm/kvm/micro_guest.h"

#define PROBE_MS 1000

GUEST_CODE(micro_three_nops, "nop\n"
                             "nop\n"
                             "nop\n" GUEST_DONE);

static void try_register(unsigned cpl, struct probe_outcome *o)
{
    micro_guest_breakpoint(PROGRAM(micro_three_nops), cpl, KVM_GUESTDBG_USE_HW_BP, MICRO_CODE + 2,
                           o);
}

void probe_register_cpl0(struct probe_outcome *o)
{
    try_register(0, o);
}

void probe_register_cpl3(struct probe_outcome *o)
{
    try_register(3, o);
}

bool debug_registers_work(struct vm *vm, unsigned cpl)
{
    enum vm_answer *answer = &(vm->whole ? vm->whole : vm)->debug_registers[cpl == 3];
    struct probe_outcome o;

    /* A KVM that lacks them at CPL0 is not relied on at CPL3. */
    if (cpl == 3 && !debug_registers_work(vm, 0))
        return false;
    if (*answer == VM_UNKNOWN) {
        isolated_run(cpl ? probe_register_cpl3 : probe_register_cpl0, PROBE_MS, &o);
        *answer = o.result == PROBE_OK ? VM_YES : VM_NO;
    }
    return *answer == VM_YES;
}
