/* What a vCPU has pending, and what is injected into it. */
#include <assert.h>
#include <sys/ioctl.h>

#include "base/x86.h"
#include "vmm/kvm/vcpu.h"

bool vcpu_interruptible(const struct vcpu *vcpu)
{
    return vcpu->run->ready_for_interrupt_injection && vcpu->run->if_flag;
}

static struct kvm_vcpu_events get_events(const struct vcpu *vcpu)
{
    struct kvm_vcpu_events events;
    int rc = ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &events);

    assert(rc == 0);
    return events;
}

bool vcpu_is_settled(const struct vcpu *vcpu)
{
    if (vcpu_interruptible(vcpu))
        return true;
    const struct kvm_vcpu_events events = get_events(vcpu);
    return !vcpu->run->if_flag && !events.interrupt.injected && !events.interrupt.shadow &&
           !events.exception.injected && !events.exception.pending && !events.nmi.injected &&
           !events.nmi.pending;
}

/* An exit for a page of KVM's own leaves RF set on Intel (SDM vol. 3, 28.3.3), and what is injected
 * then pushes it; when is the host's affair. A guest's own goes as well: it comes twice. */
static void clear_resume_flag(struct vcpu *vcpu)
{
    struct kvm_regs regs = *vcpu->regs;

    if (!(regs.rflags & RFLAGS_RF))
        return;
    regs.rflags &= ~RFLAGS_RF;
    vcpu_set_regs(vcpu, &regs);
}

void vcpu_inject(struct vcpu *vcpu, uint8_t vector)
{
    struct kvm_interrupt interrupt = {.irq = vector};

    clear_resume_flag(vcpu);
    int rc = ioctl(vcpu->fd, KVM_INTERRUPT, &interrupt);

    assert(rc == 0);
    vcpu->run->ready_for_interrupt_injection = 0; /* KVM says so at its next exit only */
}

void vcpu_inject_nmi(struct vcpu *vcpu)
{
    clear_resume_flag(vcpu);
    int rc = ioctl(vcpu->fd, KVM_NMI);

    assert(rc == 0);
}

uint8_t vcpu_cr8(const struct vcpu *vcpu)
{
    return vcpu->run->cr8 & 15;
}

void vcpu_set_cr8(struct vcpu *vcpu, uint8_t cr8)
{
    assert(cr8 < 16);
    vcpu->run->cr8 = cr8; /* KVM takes it over at its next run */
}

bool vcpu_event_pending(const struct vcpu *vcpu)
{
    const struct kvm_vcpu_events events = get_events(vcpu);

    return events.interrupt.injected || events.exception.injected || events.exception.pending;
}

int vcpu_exception_pending(const struct vcpu *vcpu)
{
    const struct kvm_vcpu_events events = get_events(vcpu);

    return events.exception.injected || events.exception.pending ? events.exception.nr : -1;
}

bool vcpu_nmi_pending(const struct vcpu *vcpu)
{
    const struct kvm_vcpu_events events = get_events(vcpu);

    return events.nmi.injected || (events.nmi.pending && !events.nmi.masked);
}

void vcpu_want_window(struct vcpu *vcpu, bool want)
{
    vcpu->run->request_interrupt_window = want;
}
