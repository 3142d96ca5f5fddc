/* The registers of a vCPU, some of which are not what the guest sees. */
#include <assert.h>
#include <sys/ioctl.h>

#include "base/x86.h"
#include "mmu/walk.h"
#include "vmm/kvm/vcpu.h"

void vcpu_set_regs(struct vcpu *vcpu, const struct kvm_regs *regs)
{
    int rc = ioctl(vcpu->fd, KVM_SET_REGS, regs);

    assert(rc == 0);
    if (regs != vcpu->regs)
        *vcpu->regs = *regs;
    vcpu->run->kvm_dirty_regs &= ~(uint64_t)KVM_SYNC_X86_REGS;
}

void vcpu_get_sregs(struct vcpu *vcpu, struct kvm_sregs *sregs)
{
    if (vcpu->run->kvm_valid_regs & KVM_SYNC_X86_SREGS) {
        *sregs = vcpu->run->s.regs.sregs;
    } else {
        int rc = ioctl(vcpu->fd, KVM_GET_SREGS, sregs);
        assert(rc == 0);
    }
    if (vcpu->cr3_used && sregs->cr3 == vcpu->cr3_used)
        sregs->cr3 = vcpu->cr3_shown;
    if (vcpu->idt_aliased)
        sregs->idt = vcpu->idt_shown;
    if (vcpu->owns_tsd && !vcpu->guest_tsd)
        sregs->cr4 &= ~CR4_TSD;
}

bool vcpu_try_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs)
{
    struct kvm_sregs used = *sregs;

    if (vcpu->cr3_used && sregs->cr3 == vcpu->cr3_shown)
        used.cr3 = vcpu->cr3_used;
    if (vcpu->idt_aliased)
        used.idt = vcpu->idt_used;
    if (vcpu->owns_tsd)
        used.cr4 |= CR4_TSD;
    if (ioctl(vcpu->fd, KVM_SET_SREGS, &used) < 0)
        return false;
    vcpu->guest_tsd = sregs->cr4 & CR4_TSD;
    vcpu->run->s.regs.sregs = used;
    return true;
}

void vcpu_set_sregs(struct vcpu *vcpu, const struct kvm_sregs *sregs)
{
    if (!vcpu_try_sregs(vcpu, sregs))
        vcpu->refused = true;
}

void vcpu_flush_tlb(struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    sregs.cr3 ^= PAGE_BYTES; /* KVM flushes the TLB when CR3 changes */
    vcpu_set_sregs(vcpu, &sregs);
    sregs.cr3 ^= PAGE_BYTES;
    vcpu_set_sregs(vcpu, &sregs);
}

void vcpu_share_sregs(struct vcpu *vcpu, bool on)
{
    vcpu->run->kvm_valid_regs = KVM_SYNC_X86_REGS | (on ? KVM_SYNC_X86_SREGS : 0);
}

void vcpu_alias_cr3(struct vcpu *vcpu, uint64_t shown, uint64_t used)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    vcpu->cr3_shown = shown;
    vcpu->cr3_used = used;
    vcpu_set_sregs(vcpu, &sregs); /* KVM flushes the TLB when CR3 changes */
}

void vcpu_alias_idt(struct vcpu *vcpu, const struct kvm_dtable *used)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    vcpu->idt_shown = sregs.idt;
    vcpu->idt_aliased = used != NULL;
    if (used)
        vcpu->idt_used = *used;
    vcpu_set_sregs(vcpu, &sregs);
}

uint8_t *vcpu_stacked_tf(struct vcpu *vcpu, unsigned above)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    uint64_t va = vcpu->regs->rsp + above + 1;
    struct kvm_sregs sregs;
    struct translation to;

    vcpu_get_sregs(vcpu, &sregs);
    if (!sregs.cs.l)
        va = (uint32_t)(sregs.ss.base + (sregs.ss.db ? va : (uint16_t)va));
    return walk(m, sregs.cr3, va, &to) ? guest_memory_at(m, to.gpa, 1) : NULL;
}

void vcpu_hide_stacked_tf(struct vcpu *vcpu, unsigned above)
{
    uint8_t *byte = vcpu_stacked_tf(vcpu, above);

    if (byte) {
        *byte &= (uint8_t) ~(RFLAGS_TF >> 8);
        guest_memory_mark(&vcpu->vm->memory, byte, 1);
    }
}
