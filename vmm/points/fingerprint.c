#include "vmm/points/fingerprint.h"

#include <assert.h>
#include <string.h>

#include "mmu/digest.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/kvm/vcpu_state.h"
#include "vmm/points/entry_count.h"
#include "vmm/points/gphook.h"
#include "vmm/points/written.h"
#include "vmm/points/written_pages.h"

#define STACK_ABOVE 384
#define LOOK_AHEAD  24
/* For these there is room at least; code saves six registers at most. */
#define STACK_PROBES 6u

/* Whether kernel code has an entry of a page table there: the CPU sets bits in it, at other times
 * in a replay. */
static bool is_entry(const struct guest_memory *m, const struct landmark *l, uint64_t va)
{
    struct translation t;

    if (l->cpl == 3 || !walk(m, l->cr3, va, &t))
        return false;
    const uint8_t *at = guest_memory_at(m, t.gpa & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES);
    if (!at || !page_looks_like_table(at))
        return false;
    const uint32_t page = (uint32_t)((uint64_t)(at - m->host) / PAGE_BYTES);
    bool is_table;
    const bool all = walk_find_tables(m, &l->cr3, 1, &page, 1, &is_table);
    return is_table || !all;
}

static void add_probe(const struct guest_memory *m, struct landmark *l, uint64_t va)
{
    struct memory_probe probe = {.va = va};

    for (unsigned i = 0; i < l->probes; i++)
        if (l->probe[i].va == va)
            return;
    if (l->probes < LANDMARK_PROBES && !is_entry(m, l, va) &&
        walk_read(m, l->cr3, va, &probe.value, sizeof probe.value) == sizeof probe.value)
        l->probe[l->probes++] = probe;
}

/* Where straight-line reading of the code goes on after this instruction; 0 where it ends. Backward
 * branches are taken (they are loops), forward ones are not. */
static uint64_t next_instruction(const struct insn *insn)
{
    uint64_t after = insn->va + insn->info.length, target;

    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
        if (insn->operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
            return 0;
        target = after + (uint64_t)insn->operands[0].imm.value.s;
        if (insn->info.machine_mode != ZYDIS_MACHINE_MODE_LONG_64)
            target = (uint32_t)target;
        return insn->info.meta.category == ZYDIS_CATEGORY_UNCOND_BR || target < insn->va ? target
                                                                                         : after;
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
        return 0;
    default:
        return after;
    }
}

bool fingerprint_loop(struct vcpu *vcpu, uint64_t from, struct small_loop *loop)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct insn insn;
    uint64_t va = from;

    vcpu_get_sregs(vcpu, &sregs);
    *loop = (struct small_loop){.low = from, .high = from};
    for (unsigned n = 0; n < LOOK_AHEAD && va; n++, va = next_instruction(&insn)) {
        if (n && va == from)
            return true;
        if (!insn_decode(m, &sregs, va, &insn))
            return false;
        loop->low = va < loop->low ? va : loop->low;
        loop->high = va > loop->high ? va : loop->high;
        loop->written |= insn_registers(&insn, ZYDIS_OPERAND_ACTION_MASK_WRITE);
    }
    return false;
}

static void take_probes(const struct guest_memory *m, const struct kvm_regs *regs,
                        const struct kvm_sregs *sregs, struct landmark *l)
{
    uint64_t va = linear_rip(regs->rip, &sregs->cs);
    struct insn insn;

    l->probes = 0;
    for (unsigned n = 0; n < LOOK_AHEAD && va; n++, va = next_instruction(&insn)) {
        if (!insn_decode(m, sregs, va, &insn))
            return;
        for (unsigned i = 0; i < insn.info.operand_count_visible; i++) {
            const ZydisDecodedOperand *op = &insn.operands[i];
            uint64_t at;
            if (op->type == ZYDIS_OPERAND_TYPE_MEMORY && op->mem.type == ZYDIS_MEMOP_TYPE_MEM &&
                insn_address(&insn, op, regs, sregs, &at))
                add_probe(m, l, at);
        }
    }
}

void fingerprint_take(struct vcpu *vcpu, const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                      struct landmark *out)
{
    const struct guest_memory *m = &vcpu->vm->memory;

    memcpy(out->regs, regs, sizeof out->regs);
    out->regs[REGISTER_RFLAGS] &= ~RFLAGS_RF;
    out->cr3 = sregs->cr3;
    out->cpl = sregs->ss.dpl;
    out->cs = sregs->cs;
    out->ss = sregs->ss;
    out->fpu = vcpu_fpu_digest(vcpu);
    take_probes(m, regs, sregs, out);
}

bool fingerprint_describe(struct vcpu *vcpu, struct landmark *out)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct translation t;
    struct insn insn;

    vcpu_get_sregs(vcpu, &sregs);
    if (!insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) ||
        !walk(m, sregs.cr3, insn.va, &t) || !guest_memory_at(m, t.gpa, 1))
        return false;
    memset(out, 0, sizeof *out);
    out->gpa = t.gpa;
    out->code_len = insn.info.length;
    memcpy(out->code, insn.bytes, insn.info.length);
    fingerprint_take(vcpu, vcpu->regs, &sregs, out);
    return true;
}

void fingerprint_probe_also(const struct guest_memory *m, struct landmark *l, const uint64_t *va,
                            unsigned count)
{
    const struct landmark before = *l;

    l->probes = 0;
    for (unsigned i = 0; i < count; i++)
        add_probe(m, l, va[i]);
    for (unsigned i = 0; i < before.probes; i++)
        add_probe(m, l, before.probe[i].va);
}

void fingerprint_probe_stack(const struct guest_memory *m, struct landmark *l)
{
    uint64_t word[STACK_ABOVE / 8];
    struct translation t;
    const size_t count = walk_read(m, l->cr3, l->regs[REGISTER_RSP], word, sizeof word) / 8;

    if (l->probes > LANDMARK_PROBES - STACK_PROBES)
        l->probes = LANDMARK_PROBES - STACK_PROBES;
    /* A count is rarely an address that is mapped. */
    for (int mapped = 0; mapped <= 1; mapped++)
        for (size_t i = 0; i < count && l->probes < LANDMARK_PROBES; i++)
            if (walk(m, l->cr3, word[i], &t) == mapped)
                add_probe(m, l, l->regs[REGISTER_RSP] + i * sizeof word[0]);
}

uint64_t fingerprint_frame(struct vcpu *vcpu, const struct landmark *l)
{
    return l->cpl == 3 ? gphook_user_frame_gpa(vcpu) : 0;
}

void fingerprint_compare_written(struct vcpu *vcpu, struct landmark *l)
{
    if (written_list(vcpu->vm, l))
        written_pages_note(vcpu->vm, fingerprint_frame(vcpu, l), l, written_checks(vcpu->vm));
}

static uint64_t status_of(const struct landmark *l)
{
    return l->regs[REGISTER_RFLAGS] & RFLAGS_STATUS;
}

/* These of its flags become those of `rflags`. */
static void set_flags(struct vcpu *vcpu, uint64_t flags, uint64_t rflags)
{
    struct kvm_regs regs = *vcpu->regs;

    regs.rflags = (regs.rflags & ~flags) | (rflags & flags);
    if (regs.rflags != vcpu->regs->rflags)
        vcpu_set_regs(vcpu, &regs);
}

void fingerprint_arrive(struct vcpu *vcpu, const struct landmark *l)
{
    set_flags(vcpu, RFLAGS_STATUS, l->regs[REGISTER_RFLAGS]);
}

void fingerprint_undefined_flags(struct vcpu *vcpu, uint64_t rflags)
{
    set_flags(vcpu, RFLAGS_STATUS & ~(RFLAGS_CF | RFLAGS_ZF), rflags);
}

uint32_t fingerprint_other_registers(const struct kvm_regs *regs, const struct landmark *l)
{
    uint64_t now[REG_COUNT];
    uint32_t other = 0;

    memcpy(now, regs, sizeof now);
    now[REGISTER_RFLAGS] &= ~(RFLAGS_RF | RFLAGS_STATUS);
    now[REGISTER_RFLAGS] |= status_of(l);
    for (unsigned i = 0; i < REG_COUNT; i++)
        other |= (uint32_t)(now[i] != l->regs[i]) << i;
    return other;
}

enum fingerprint_part fingerprint_compare(struct vcpu *vcpu, const struct kvm_regs *regs,
                                          const struct kvm_sregs *sregs, const struct landmark *l,
                                          struct page_hint *hint)
{
    const struct guest_memory *m = &vcpu->vm->memory;

    if (fingerprint_other_registers(regs, l) || sregs->cr3 != l->cr3)
        return FINGERPRINT_REGISTERS;
    if (entries_between(m, l))
        return FINGERPRINT_MEMORY;
    for (unsigned i = 0; i < l->probes; i++) {
        uint64_t value;
        if (walk_read(m, l->cr3, l->probe[i].va, &value, 8) != 8 || value != l->probe[i].value)
            return FINGERPRINT_MEMORY;
    }
    if (vcpu_fpu_digest(vcpu) != l->fpu)
        return FINGERPRINT_FPU;
    return !l->exact || written_pages_equal(vcpu->vm, fingerprint_frame(vcpu, l), l, hint)
               ? FINGERPRINT_EQUAL
               : FINGERPRINT_PAGES;
}
