#include "vmm/kvm/cr4.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/hidden_ports.h"
#include "base/x86.h"
#include "mmu/insn.h"

#define REX_OUT_BYTES 3u

bool cr4_exit(struct vcpu *vcpu, struct vcpu_exit *exit)
{
    uint8_t code[REX_OUT_BYTES];

    if ((exit->at != CR4_READ_PORT && exit->at != CR4_WRITE_PORT) || exit->size != 4 ||
        vcpu_read(vcpu, vcpu->regs->rip, code, sizeof code) != sizeof code ||
        (code[0] & 0xf0) != 0x40 || code[1] != 0xe7 || code[2] != exit->at)
        return false;
    *exit = (struct vcpu_exit){
        .kind = exit->at == CR4_READ_PORT ? EXIT_CR4_READ : EXIT_CR4_WRITE,
        .size = code[0] & 15u,
        .count = 1,
    };
    return true;
}

static void raise_gp(struct vcpu *vcpu)
{
    struct kvm_vcpu_events events;

    int rc = ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &events);
    assert(rc == 0);
    events.exception.injected = 1;
    events.exception.nr = VECTOR_GP;
    events.exception.has_error_code = 1;
    events.exception.error_code = 0;
    rc = ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &events);
    assert(rc == 0);
}

/* False: the CPU raises #GP. */
static bool write_cr4(struct vcpu *vcpu, uint64_t value)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    const uint64_t changed = sregs.cr4 ^ value;

    if (sregs.efer & EFER_LMA && sregs.cr0 & CR0_PG && !(value & CR4_PAE))
        return false;
    sregs.cr4 = value;
    if (!vcpu_try_sregs(vcpu, &sregs))
        return false;
    if (changed & ~CR4_TSD) /* whichever bit it is: what is flushed too much does not show */
        vcpu_flush_tlb(vcpu);
    return true;
}

void cr4_finish(struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    struct kvm_sregs sregs;
    struct err e;

    assert(exit->size < 16);
    const int rc = vcpu_complete(vcpu, &e);
    assert(rc == 0);
    struct kvm_regs regs = *vcpu->regs;
    uint64_t *reg = (uint64_t *)&regs + insn_index_of[exit->size];

    if (exit->kind == EXIT_CR4_READ) {
        vcpu_get_sregs(vcpu, &sregs);
        *reg = sregs.cr4;
        vcpu_set_regs(vcpu, &regs);
    } else if (!write_cr4(vcpu, *reg)) {
        regs.rip -= REX_OUT_BYTES;
        vcpu_set_regs(vcpu, &regs);
        raise_gp(vcpu);
    }
}

bool cr4_tsd_is_lost(struct vcpu *vcpu)
{
    struct kvm_sregs sregs;

    int rc = ioctl(vcpu->fd, KVM_GET_SREGS, &sregs);
    assert(rc == 0);
    return vcpu->owns_tsd && !(sregs.cr4 & CR4_TSD);
}
