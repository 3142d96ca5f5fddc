#include "vmm/vcpu_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "recorder/event.h"
#include "vmm/cpuid.h"
#include "vmm/cr4.h"
#include "vmm/msr.h"

struct msr_block {
    struct kvm_msrs head;
    struct kvm_msr_entry entry[VCPU_STATE_MSRS];
};

static void msr_block_init(struct msr_block *block)
{
    assert(msr_state_count <= VCPU_STATE_MSRS);
    *block = (struct msr_block){.head.nmsrs = msr_state_count};
    for (unsigned i = 0; i < msr_state_count; i++)
        block->entry[i].index = msr_state_list[i];
}

int vcpu_state_get(struct vcpu *vcpu, struct vcpu_state *state, struct err *e)
{
    struct msr_block block;

    assert(!vcpu->cr3_used && !vcpu->idt_aliased);
    memset(state, 0, sizeof *state);
    msr_block_init(&block);
    if (ioctl(vcpu->fd, KVM_GET_REGS, &state->regs) < 0 ||
        ioctl(vcpu->fd, KVM_GET_SREGS, &state->sregs) < 0 ||
        ioctl(vcpu->fd, KVM_GET_FPU, &state->fpu) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's state: %s", strerror(errno));
    if (vcpu->owns_tsd && !vcpu->guest_tsd)
        state->sregs.cr4 &= ~CR4_TSD;
    if (ioctl(vcpu->fd, KVM_GET_MSRS, &block) != (int)msr_state_count)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's MSRs: %s", strerror(errno));
    for (unsigned i = 0; i < msr_state_count; i++)
        state->msrs[i] = msr_state_mask(i) & block.entry[i].data;
    return 0;
}

int vcpu_state_set(struct vcpu *vcpu, const struct vcpu_state *state, struct err *e)
{
    struct msr_block block;
    struct kvm_fpu fpu = state->fpu;
    struct kvm_sregs sregs, now;

    /* The APIC base is not part of the state: vcpu_create() has set it. */
    if (ioctl(vcpu->fd, KVM_GET_SREGS, &now) < 0)
        return err_set(e, STATUS_ERROR, "cannot read the vCPU's state: %s", strerror(errno));
    sregs = state->sregs;
    sregs.apic_base = now.apic_base;
    msr_block_init(&block);
    for (unsigned i = 0; i < msr_state_count; i++)
        block.entry[i].data = state->msrs[i];
    if (!vcpu_try_sregs(vcpu, &sregs) || ioctl(vcpu->fd, KVM_SET_REGS, &state->regs) < 0 ||
        ioctl(vcpu->fd, KVM_SET_FPU, &fpu) < 0)
        return err_set(e, STATUS_ERROR, "KVM refuses the vCPU's state: %s", strerror(errno));
    *vcpu->regs = state->regs;
    vcpu_set_cr8(vcpu, sregs.cr8 & 15); /* or KVM's next run would bring back the old one */
    if (ioctl(vcpu->fd, KVM_SET_MSRS, &block) != (int)msr_state_count)
        return err_set(e, STATUS_ERROR, "KVM refuses the vCPU's MSRs: %s", strerror(errno));
    return 0;
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
    if (vcpu_complete(vcpu, e) < 0 || vcpu_state_get(vcpu, &state, e) < 0)
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

#define SEGMENT_UNUSABLE (1u << 12)

uint16_t segment_attributes(const struct kvm_segment *s)
{
    return (uint16_t)(s->type | s->present << 4 | s->dpl << 5 | s->db << 7 | s->s << 8 | s->l << 9 |
                      s->g << 10 | s->avl << 11 | (s->unusable ? SEGMENT_UNUSABLE : 0));
}

void segment_set_attributes(struct kvm_segment *s, uint16_t bits)
{
    s->type = bits & 15;
    s->present = bits >> 4 & 1;
    s->dpl = bits >> 5 & 3;
    s->db = bits >> 7 & 1;
    s->s = bits >> 8 & 1;
    s->l = bits >> 9 & 1;
    s->g = bits >> 10 & 1;
    s->avl = bits >> 11 & 1;
    s->unusable = bits & SEGMENT_UNUSABLE ? 1 : 0;
}

static void segment_encode(struct bytes *out, const struct kvm_segment *s)
{
    bytes_put_u64(out, s->base);
    bytes_put_u32(out, s->limit);
    bytes_put_u16(out, s->selector);
    /* An unusable segment has no other attributes worth the name; KVM's backends differ in what
     * they leave there. */
    bytes_put_u16(out, s->unusable ? SEGMENT_UNUSABLE : segment_attributes(s));
}

static void segment_decode(struct cursor *in, struct kvm_segment *s)
{
    memset(s, 0, sizeof *s);
    s->base = cursor_u64(in);
    s->limit = cursor_u32(in);
    s->selector = cursor_u16(in);
    segment_set_attributes(s, cursor_u16(in));
}

static void fpu_encode(struct bytes *out, const struct kvm_fpu *fpu)
{
    bytes_put(out, fpu->fpr, sizeof fpu->fpr);
    bytes_put_u16(out, fpu->fcw);
    bytes_put_u16(out, fpu->fsw);
    bytes_put_u8(out, fpu->ftwx);
    bytes_put(out, fpu->xmm, sizeof fpu->xmm);
    bytes_put_u32(out, fpu->mxcsr);
}

static void sregs_encode(struct bytes *out, const struct kvm_sregs *s)
{
    const struct kvm_segment *segments[] = {&s->cs, &s->ds, &s->es, &s->fs,
                                            &s->gs, &s->ss, &s->tr, &s->ldt};

    for (unsigned i = 0; i < 8; i++)
        segment_encode(out, segments[i]);
    bytes_put_u64(out, s->gdt.base);
    bytes_put_u16(out, s->gdt.limit);
    bytes_put_u64(out, s->idt.base);
    bytes_put_u16(out, s->idt.limit);
    bytes_put_u64(out, s->cr0);
    bytes_put_u64(out, s->cr2);
    bytes_put_u64(out, s->cr3);
    bytes_put_u64(out, s->cr4);
    bytes_put_u64(out, s->cr8);
    bytes_put_u64(out, s->efer);
}

void vcpu_state_encode(struct bytes *out, const struct vcpu_state *state)
{
    struct kvm_regs regs = state->regs;
    const size_t start = out->len;

    regs.rflags &= ~RFLAGS_RF;
    bytes_put(out, &regs, sizeof regs);
    sregs_encode(out, &state->sregs);
    fpu_encode(out, &state->fpu);
    bytes_put_varint(out, msr_state_count);
    bytes_put(out, state->msrs, msr_state_count * sizeof *state->msrs);
    assert(out->len - start <= VCPU_STATE_MAX_BYTES);
}

bool vcpu_state_decode(struct cursor *in, struct vcpu_state *state)
{
    struct kvm_sregs *s = &state->sregs;
    struct kvm_segment *segments[] = {&s->cs, &s->ds, &s->es, &s->fs,
                                      &s->gs, &s->ss, &s->tr, &s->ldt};

    memset(state, 0, sizeof *state);
    cursor_get(in, &state->regs, sizeof state->regs);
    for (unsigned i = 0; i < 8; i++)
        segment_decode(in, segments[i]);
    s->gdt.base = cursor_u64(in);
    s->gdt.limit = cursor_u16(in);
    s->idt.base = cursor_u64(in);
    s->idt.limit = cursor_u16(in);
    s->cr0 = cursor_u64(in);
    s->cr2 = cursor_u64(in);
    s->cr3 = cursor_u64(in);
    s->cr4 = cursor_u64(in);
    s->cr8 = cursor_u64(in);
    s->efer = cursor_u64(in);
    cursor_get(in, state->fpu.fpr, sizeof state->fpu.fpr);
    state->fpu.fcw = cursor_u16(in);
    state->fpu.fsw = cursor_u16(in);
    state->fpu.ftwx = cursor_u8(in);
    cursor_get(in, state->fpu.xmm, sizeof state->fpu.xmm);
    state->fpu.mxcsr = cursor_u32(in);
    if (cursor_varint(in) != msr_state_count)
        in->bad = true;
    else
        cursor_get(in, state->msrs, msr_state_count * sizeof *state->msrs);
    return !in->bad;
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

bool vcpu_pending_fault(const struct vcpu_pending *pending)
{
    return pending->events.exception.injected || pending->events.exception.pending;
}

void vcpu_pending_encode(struct bytes *out, const struct vcpu_pending *pending)
{
    const struct kvm_vcpu_events *v = &pending->events;
    const uint8_t fields[] = {
        v->exception.injected, v->exception.nr,       v->exception.has_error_code,
        v->exception.pending,  v->interrupt.injected, v->interrupt.nr,
        v->interrupt.soft,     v->interrupt.shadow,   v->nmi.injected,
        v->nmi.pending,        v->nmi.masked,
    };

    bytes_put(out, fields, sizeof fields);
    bytes_put_u32(out, v->exception.error_code);
    bytes_put_u32(out, v->flags);
    for (unsigned i = 0; i < 4; i++)
        bytes_put_u64(out, pending->debug.db[i]);
    bytes_put_u64(out, pending->debug.dr6);
    bytes_put_u64(out, pending->debug.dr7);
}

bool vcpu_pending_decode(struct cursor *in, struct vcpu_pending *pending)
{
    struct kvm_vcpu_events *v = &pending->events;
    uint8_t *fields[] = {
        &v->exception.injected, &v->exception.nr,       &v->exception.has_error_code,
        &v->exception.pending,  &v->interrupt.injected, &v->interrupt.nr,
        &v->interrupt.soft,     &v->interrupt.shadow,   &v->nmi.injected,
        &v->nmi.pending,        &v->nmi.masked,
    };

    memset(pending, 0, sizeof *pending);
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = cursor_u8(in);
    v->exception.error_code = cursor_u32(in);
    v->flags = cursor_u32(in);
    if (v->flags & ~(uint32_t)(KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SHADOW))
        in->bad = true;
    for (unsigned i = 0; i < 4; i++)
        pending->debug.db[i] = cursor_u64(in);
    pending->debug.dr6 = cursor_u64(in);
    pending->debug.dr7 = cursor_u64(in);
    return !in->bad;
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
        if (rc == 0)
            vcpu_state_encode(&b, &state);
    }
    *digest = XXH3_64bits(b.data, b.len);
    bytes_free(&b);
    return rc;
}

uint64_t fpu_digest(const struct kvm_fpu *fpu)
{
    struct bytes b = {0};

    fpu_encode(&b, fpu);
    uint64_t digest = XXH3_64bits(b.data, b.len);
    bytes_free(&b);
    return digest;
}

uint64_t vcpu_fpu_digest(struct vcpu *vcpu)
{
    struct kvm_fpu fpu;
    int rc = ioctl(vcpu->fd, KVM_GET_FPU, &fpu);

    assert(rc == 0);
    return fpu_digest(&fpu);
}
