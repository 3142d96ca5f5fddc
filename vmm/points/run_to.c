#include "vmm/points/run_to.h"

#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"

enum clock_choice kernel_run_to(struct vcpu *vcpu, const struct clock_host *host, uint64_t va,
                                uint64_t kick_ns, struct vcpu_exit *exit, struct err *e)
{
    static const enum clock_choice choice[] = {
        [BREAKPOINT_HIT] = CLOCK_CHOSEN,
        [BREAKPOINT_EXIT] = CLOCK_EXITED,
        [BREAKPOINT_STOPPED] = CLOCK_LATER,
        [BREAKPOINT_FAILED] = CLOCK_FAILED,
    };
    const struct guest_memory *m = &vcpu->vm->memory;
    struct breakpoint place = {.va = va};
    struct breakpoints set;
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(vcpu, &sregs);
    if (sregs.ss.dpl != 0 || !walk(m, sregs.cr3, va, &t) || !guest_memory_at(m, t.gpa, 1))
        return CLOCK_LATER;
    breakpoints_init(&set, vcpu, host->hook);
    if (breakpoints_add(&set, &place, e) < 0)
        return CLOCK_FAILED;
    host->kick_after(host->opaque, kick_ns);
    const enum breakpoint_stop stop = breakpoints_run(&set, exit, e);
    breakpoints_remove(&set, &place);
    return stop == BREAKPOINT_HIT && !clock_can_stop(vcpu, host) ? CLOCK_LATER : choice[stop];
}
