#include "recording/cpu_state.h"

#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/x86.h"

const uint32_t msr_state_list[] = {
    0x174,      0x175,      0x176,      0x277,      /* SYSENTER_CS/ESP/EIP, PAT */
    0xc0000081, 0xc0000082, 0xc0000083, 0xc0000084, /* STAR, LSTAR, CSTAR, SFMASK */
    0xc0000100, 0xc0000101, 0xc0000102,             /* FS_BASE, GS_BASE, KERNEL_GS_BASE */
};
const unsigned msr_state_count = sizeof msr_state_list / sizeof *msr_state_list;

uint64_t *msr_of_state(struct vcpu_state *state, uint32_t msr)
{
    unsigned i = 0;

    while (msr_state_list[i] != msr)
        assert(++i < msr_state_count);
    return &state->msrs[i];
}

void msrs_from_segments(struct vcpu_state *state)
{
    *msr_of_state(state, MSR_FS_BASE) = state->sregs.fs.base;
    *msr_of_state(state, MSR_GS_BASE) = state->sregs.gs.base;
}

uint64_t msr_state_mask(unsigned index)
{
    const uint32_t msr = msr_state_list[index];

    return msr == 0x175 || msr == 0x176 ? UINT32_MAX : UINT64_MAX;
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

void x87_last_encode(struct bytes *out, const struct kvm_fpu *fpu)
{
    bytes_put_u16(out, fpu->last_opcode);
    bytes_put_u64(out, fpu->last_ip);
    bytes_put_u64(out, fpu->last_dp);
}

void x87_last_decode(struct cursor *in, struct kvm_fpu *fpu)
{
    fpu->last_opcode = cursor_u16(in);
    fpu->last_ip = cursor_u64(in);
    fpu->last_dp = cursor_u64(in);
}

uint64_t fpu_digest(const struct kvm_fpu *fpu)
{
    struct bytes b = {0};

    fpu_encode(&b, fpu);
    uint64_t digest = XXH3_64bits(b.data, b.len);
    bytes_free(&b);
    return digest;
}
