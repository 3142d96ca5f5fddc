#include "vmm/kvm/guest_debug.h"

#include <assert.h>
#include <sys/ioctl.h>

#include "base/x86.h"

#define BREAKPOINTS 4u /* of a CPU */

static struct kvm_debugregs get_registers(int vcpu)
{
    struct kvm_debugregs debug;
    int rc = ioctl(vcpu, KVM_GET_DEBUGREGS, &debug);

    assert(rc == 0);
    return debug;
}

bool guest_debug_is_on(int vcpu)
{
    return get_registers(vcpu).dr7 & DR7_ENABLED;
}

/* Whether this #DB is due to one of the guest's breakpoints. The CPU notes in DR6 which ones would
 * have caused it if they were enabled, too (Intel SDM vol. 3, 18.2.3). */
static bool is_hit(const struct kvm_run *run, const struct kvm_debugregs *debug)
{
    uint64_t enabled = 0;

    for (unsigned i = 0; i < BREAKPOINTS; i++)
        if (debug->dr7 & DR7_ENABLED & (3ull << 2 * i))
            enabled |= 1ull << i;
    return run->debug.arch.dr6 & enabled;
}

/* Have the #DB taken at the next run, with these bits of DR6. */
static void take_later(int vcpu, struct kvm_run *run, struct kvm_debugregs *debug, uint64_t bits)
{
    struct kvm_vcpu_events events;

    debug->dr6 = (debug->dr6 & ~DR6_HITS) | (run->debug.arch.dr6 & bits);
    int rc = ioctl(vcpu, KVM_SET_DEBUGREGS, debug);
    assert(rc == 0);
    rc = ioctl(vcpu, KVM_GET_VCPU_EVENTS, &events);
    assert(rc == 0);
    events.exception.injected = 1;
    events.exception.nr = VECTOR_DB;
    events.exception.has_error_code = 0;
    rc = ioctl(vcpu, KVM_SET_VCPU_EVENTS, &events);
    assert(rc == 0);
    run->ready_for_interrupt_injection = 0;
}

bool guest_debug_give_back(int vcpu, struct kvm_run *run)
{
    if (!(run->debug.arch.dr6 & DR6_HITS))
        return false;
    struct kvm_debugregs debug = get_registers(vcpu);
    if (!is_hit(run, &debug))
        return false;
    take_later(vcpu, run, &debug, DR6_HITS);
    return true;
}

bool guest_debug_give_back_step(int vcpu, struct kvm_run *run)
{
    if (!(run->debug.arch.dr6 & DR6_BS))
        return false;
    struct kvm_debugregs debug = get_registers(vcpu);
    take_later(vcpu, run, &debug, DR6_BS);
    return true;
}
