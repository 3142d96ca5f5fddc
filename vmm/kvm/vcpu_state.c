#include "vmm/kvm/vcpu_state.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/cr4.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/site.h"

struct msr_block {
    struct kvm_msrs head;
    struct kvm_msr_entry entry[VCPU_STATE_MSRS];
};

/* Linux 5.10 on AMD knows them as bases of segments only. */
static bool is_base(uint32_t msr)
{
    return msr == MSR_FS_BASE || msr == MSR_GS_BASE;
}

static void msr_block_init(struct msr_block *block, const struct vcpu_state *state)
{
    assert(msr_state_count <= VCPU_STATE_MSRS);
    *block = (struct msr_block){0};
    for (unsigned i = 0; i < msr_state_count; i++)
        if (!is_base(msr_state_list[i]))
            block->entry[block->head.nmsrs++] =
                (struct kvm_msr_entry){.index = msr_state_list[i], .data = state->msrs[i]};
}

/* What FXSAVE and XSAVE store of x87 and SSE in 64-bit code (Intel SDM vol. 1, table 10-2). */
struct legacy_area {
    uint16_t fcw, fsw;
    uint8_t ftw, reserved;
    uint16_t fop;
    uint64_t fip, fdp;
    uint32_t mxcsr, mxcsr_mask;
    uint8_t st[8][16], xmm[16][16];
};
#define XSTATE_BV   128u /* the header's first word (13.4.2), in words of 32 bits */
#define XSTATE_X87  1u
#define XSTATE_SSE  2u
#define XSTATE_AVX  4u /* has MXCSR, too */
#define FCW_RESET   0x37fu
#define FSW_SUMMARY 0x80u   /* there is an exception that is not masked */
#define MXCSR_MASKS 0x1f80u /* of all exceptions */

/* KVM_GET_FPU and KVM_SET_FPU leave out MXCSR, and a vCPU that has not run yet keeps nothing of the
 * latter: XSTATE_BV says that all is as at reset. */
static int fpu_get(const struct vcpu *vcpu, struct kvm_fpu *fpu)
{
    struct kvm_xsave xsave;
    struct legacy_area area;

    if (ioctl(vcpu->fd, KVM_GET_XSAVE, &xsave) < 0)
        return -1;
    memcpy(&area, xsave.region, sizeof area);
    if (!(xsave.region[XSTATE_BV] & (XSTATE_SSE | XSTATE_AVX)))
        area.mxcsr = MXCSR_RESET;
    /* Of what is as at reset, Linux 5.10 tells what was there before. */
    if (!(xsave.region[XSTATE_BV] & XSTATE_SSE))
        memset(area.xmm, 0, sizeof area.xmm);
    if (!(xsave.region[XSTATE_BV] & XSTATE_X87)) {
        memset(&area, 0, offsetof(struct legacy_area, mxcsr));
        memset(area.st, 0, sizeof area.st);
        area.fcw = FCW_RESET;
    }
    *fpu = (struct kvm_fpu){.fcw = area.fcw,
                            .fsw = area.fsw,
                            .ftwx = area.ftw,
                            .last_opcode = area.fop,
                            .last_ip = area.fip,
                            .last_dp = area.fdp,
                            .mxcsr = area.mxcsr};
    memcpy(fpu->fpr, area.st, sizeof fpu->fpr);
    memcpy(fpu->xmm, area.xmm, sizeof fpu->xmm);
    return 0;
}

/* Intel SDM vol. 1, 8.7 and 11.5: what an x87 instruction has raised, the next one that waits is
 * stopped by; what an SSE instruction raises stops itself. */
static bool may_stop(const struct insn *insn, const struct kvm_fpu *fpu)
{
    return fpu->fsw & FSW_SUMMARY || (site_uses_sse(insn) && ~fpu->mxcsr & MXCSR_MASKS);
}

static bool can_step(struct vcpu *vcpu, const struct insn *insn,
                     bool (*can)(const struct guest_memory *m, const struct insn *insn,
                                 const struct kvm_regs *regs, const struct kvm_sregs *sregs))
{
    struct kvm_sregs sregs;
    struct kvm_fpu fpu;

    vcpu_get_sregs(vcpu, &sregs);
    if (!can(&vcpu->vm->memory, insn, vcpu->regs, &sregs))
        return false;
    return !site_uses_fpu(insn) || (fpu_get(vcpu, &fpu) == 0 && !may_stop(insn, &fpu));
}

bool vcpu_can_step(struct vcpu *vcpu, const struct insn *insn)
{
    return can_step(vcpu, insn, site_can_step);
}

bool vcpu_hides_step(struct vcpu *vcpu, const struct insn *insn)
{
    return can_step(vcpu, insn, site_hides_step);
}

static int fpu_set(const struct vcpu *vcpu, const struct kvm_fpu *fpu)
{
    struct kvm_xsave xsave;
    struct legacy_area area;

    if (ioctl(vcpu->fd, KVM_GET_XSAVE, &xsave) < 0)
        return -1;
    memcpy(&area, xsave.region, sizeof area);
    area.fcw = fpu->fcw;
    area.fsw = fpu->fsw;
    area.ftw = fpu->ftwx;
    area.fop = fpu->last_opcode;
    area.fip = fpu->last_ip;
    area.fdp = fpu->last_dp;
    area.mxcsr = fpu->mxcsr;
    memcpy(area.st, fpu->fpr, sizeof area.st);
    memcpy(area.xmm, fpu->xmm, sizeof area.xmm);
    memcpy(xsave.region, &area, sizeof area);
    xsave.region[XSTATE_BV] |= XSTATE_X87 | XSTATE_SSE;
    return ioctl(vcpu->fd, KVM_SET_XSAVE, &xsave);
}

/* KVM stops at the first MSR that it does not take. */
static int transfer_msrs(const struct vcpu *vcpu, unsigned long request, struct msr_block *block,
                         const char *trouble, struct err *e)
{
    const int done = ioctl(vcpu->fd, request, block);

    if (done < 0)
        return err_set(e, STATUS_ERROR, "%ss: %s", trouble, strerror(errno));
    if ((unsigned)done < block->head.nmsrs)
        return err_set(e, STATUS_ERROR, "%s %#x", trouble, block->entry[done].index);
    return 0;
}

int vcpu_state_get(struct vcpu *vcpu, struct vcpu_state *state, struct err *e)
{
    struct msr_block block;

    assert(!vcpu->cr3_used && !vcpu->idt_aliased);
    memset(state, 0, sizeof *state);
    if (ioctl(vcpu->fd, KVM_GET_REGS, &state->regs) < 0 ||
        ioctl(vcpu->fd, KVM_GET_SREGS, &state->sregs) < 0 || fpu_get(vcpu, &state->fpu) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's state: %s", strerror(errno));
    if (vcpu->owns_tsd && !vcpu->guest_tsd)
        state->sregs.cr4 &= ~CR4_TSD;
    msr_block_init(&block, state);
    if (transfer_msrs(vcpu, KVM_GET_MSRS, &block, "cannot read the vCPU's MSR", e) < 0)
        return -1;
    for (unsigned i = 0; i < block.head.nmsrs; i++)
        *msr_of_state(state, block.entry[i].index) = block.entry[i].data;
    msrs_from_segments(state);
    return 0;
}

int vcpu_state_set(struct vcpu *vcpu, const struct vcpu_state *state, struct err *e)
{
    struct vcpu_state s = *state;
    struct msr_block block;
    struct kvm_sregs now;

    /* The APIC base is not part of the state: vcpu_create() has set it. */
    if (ioctl(vcpu->fd, KVM_GET_SREGS, &now) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's state: %s", strerror(errno));
    s.sregs.apic_base = now.apic_base;
    s.sregs.fs.base = *msr_of_state(&s, MSR_FS_BASE);
    s.sregs.gs.base = *msr_of_state(&s, MSR_GS_BASE);
    if (!vcpu_try_sregs(vcpu, &s.sregs) || ioctl(vcpu->fd, KVM_SET_REGS, &s.regs) < 0 ||
        fpu_set(vcpu, &s.fpu) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses the vCPU's state: %s", strerror(errno));
    *vcpu->regs = s.regs;
    vcpu_set_cr8(vcpu, s.sregs.cr8 & 15); /* or KVM's next run would bring back the old one */
    msr_block_init(&block, &s);
    return transfer_msrs(vcpu, KVM_SET_MSRS, &block, "KVM refuses the vCPU's MSR", e);
}

static struct kvm_segment real_mode_segment(unsigned selector, unsigned type, bool system)
{
    return (struct kvm_segment){
        .base = (uint64_t)selector << 4,
        .limit = 0xffff,
        .selector = (uint16_t)selector,
        .type = type & 15,
        .present = 1,
        .s = !system,
    };
}

int vcpu_start(struct vcpu *vcpu, uint8_t vector, struct err *e)
{
    struct vcpu_state state;
    struct kvm_vcpu_events none = {.flags = KVM_VCPUEVENT_VALID_NMI_PENDING |
                                            KVM_VCPUEVENT_VALID_SHADOW};

    vcpu_want_window(vcpu, false);
    if (vcpu_complete(vcpu, e) < 0 || (vcpu_is_halfway(vcpu) && vcpu_abandon(vcpu, e) < 0) ||
        vcpu_state_get(vcpu, &state, e) < 0)
        return -1;
    struct kvm_sregs *s = &state.sregs;
    state.regs = (struct kvm_regs){.rdx = CPUID_SIGNATURE, .rflags = 2};
    s->cs = real_mode_segment((unsigned)vector << 8, 11, false);
    s->ds = s->es = s->fs = s->gs = s->ss = real_mode_segment(0, 3, false);
    s->tr = real_mode_segment(0, 11, true);
    s->ldt = real_mode_segment(0, 2, true);
    s->gdt = s->idt = (struct kvm_dtable){.limit = 0xffff};
    s->cr0 = 0x10; /* ET; caches on */
    s->cr2 = s->cr3 = s->cr4 = s->cr8 = s->efer = 0;
    memset(s->interrupt_bitmap, 0, sizeof s->interrupt_bitmap);
    if (vcpu_state_set(vcpu, &state, e) < 0)
        return -1;
    if (ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &none) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses to start a vCPU: %s", strerror(errno));
    /* For what KVM says in kvm_run about interrupts. */
    return vcpu_complete(vcpu, e);
}

int vcpu_pending_get(struct vcpu *vcpu, struct vcpu_pending *pending, struct err *e)
{
    memset(pending, 0, sizeof *pending);
    if (ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &pending->events) < 0 ||
        ioctl(vcpu->fd, KVM_GET_DEBUGREGS, &pending->debug) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's state: %s", strerror(errno));
    pending->events.flags &= KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW;
    return 0;
}

int vcpu_pending_set(struct vcpu *vcpu, const struct vcpu_pending *pending, struct err *e)
{
    if (ioctl(vcpu->fd, KVM_SET_VCPU_EVENTS, &pending->events) < 0 ||
        ioctl(vcpu->fd, KVM_SET_DEBUGREGS, &pending->debug) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses the vCPU's state: %s", strerror(errno));
    return 0;
}

uint32_t vcpu_mxcsr_mask(void)
{
    struct {
        uint8_t before[28];
        uint32_t mxcsr_mask;
        uint8_t behind[480];
    } __attribute__((aligned(16))) area = {0};
    _Static_assert(sizeof area == 512, "what FXSAVE stores");

    __asm__ volatile("fxsave %0" : "=m"(area));
    return area.mxcsr_mask;
}

int vcpus_digest(struct vm *vm, uint64_t *digest, struct err *e)
{
    struct vcpu_state state;
    struct bytes b = {0};
    int rc = 0;

    for (unsigned i = 0; i < MAX_VCPUS && rc == 0; i++) {
        if (!vm->vcpu[i])
            continue;
        rc = vcpu_complete(vm->vcpu[i], e) < 0 ? -1 : vcpu_state_get(vm->vcpu[i], &state, e);
        if (rc == 0 && vm->vcpu[i]->without_mxcsr)
            state.fpu.mxcsr = 0;
        for (unsigned msr = 0; rc == 0 && msr < msr_state_count; msr++)
            state.msrs[msr] &= msr_state_mask(msr);
        if (rc == 0)
            vcpu_state_encode(&b, &state);
    }
    *digest = XXH3_64bits(b.data, b.len);
    bytes_free(&b);
    return rc;
}

uint64_t vcpu_fpu_digest(struct vcpu *vcpu)
{
    struct kvm_fpu fpu;
    int rc = fpu_get(vcpu, &fpu);

    assert(rc == 0);
    if (vcpu->without_mxcsr)
        fpu.mxcsr = 0;
    return fpu_digest(&fpu);
}

int vcpu_begin_anew(struct vcpu *vcpu, const struct vcpu_state *state,
                    const struct vcpu_pending *pending, struct err *e)
{
    vcpu_want_window(vcpu, false);
    if (vcpu_abandon(vcpu, e) < 0 || vcpu_state_set(vcpu, state, e) < 0)
        return -1;
    vcpu_flush_tlb(vcpu); /* its page tables are others, though CR3 may be the same */
    if (vcpu_pending_set(vcpu, pending, e) < 0)
        return -1;
    return vcpu_complete(vcpu, e); /* for what KVM says in kvm_run about interrupts */
}
