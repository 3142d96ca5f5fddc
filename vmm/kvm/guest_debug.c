#include "vmm/kvm/guest_debug.h"

#include <assert.h>
#include <sys/ioctl.h>

#include "base/x86.h"

#define BREAKPOINTS 4u /* of a CPU */

bool guest_debug_is_on(int vcpu)
{
    struct kvm_debugregs debug;
    int rc = ioctl(vcpu, KVM_GET_DEBUGREGS, &debug);

    assert(rc == 0);
    return debug.dr7 & DR7_ENABLED;
}

/* Those of the guest's breakpoints that caused this #DB; the CPU notes in DR6 which ones would have
 * done so if they were enabled, too (Intel SDM vol. 3, 18.2.3). */
static uint64_t hits(const struct kvm_run *run, const struct kvm_debugregs *debug)
{
    uint64_t hit = 0;

    for (unsigned i = 0; i < BREAKPOINTS; i++)
        if (debug->dr7 & DR7_ENABLED & (3ull << 2 * i))
            hit |= run->debug.arch.dr6 & (1ull << i);
    return hit;
}

void guest_debug_give_back(int vcpu, struct kvm_run *run)
{
    struct kvm_debugregs debug;
    struct kvm_vcpu_events events;
    int rc;

    if (!(run->debug.arch.dr6 & DR6_HITS))
        return;
    rc = ioctl(vcpu, KVM_GET_DEBUGREGS, &debug);
    assert(rc == 0);
    const uint64_t hit = hits(run, &debug);
    if (!hit)
        return;
    debug.dr6 |= hit;
    rc = ioctl(vcpu, KVM_SET_DEBUGREGS, &debug);
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
