/* Iterations of string instructions: see vmm/points/repeat.h. */
#include "vmm/points/repeat.h"

#include <string.h>

#include "base/x86.h"
#include "mmu/walk.h"
#include "vmm/kvm/guest_debug.h"
#include "vmm/points/written.h"

#define REPEATED (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)
/* So many iterations take some ms. */
#define MOST_AT_ONCE (1u << 20)

bool repeat_is(const struct insn *insn)
{
    return (insn->info.attributes & REPEATED) &&
           (insn->info.meta.category == ZYDIS_CATEGORY_STRINGOP ||
            insn->info.meta.category == ZYDIS_CATEGORY_IOSTRINGOP);
}

enum kind { MOVS, STOS, LODS, CMPS, SCAS };

/* The next element that one of the index registers points to. */
struct element {
    bool used;
    uint64_t va, gpa;
    uint8_t *page; /* host address */
};

/* A string instruction at work. */
struct string_op {
    enum kind kind;
    unsigned size; /* of an element */
    uint64_t step; /* between elements, modulo 2^64 */
    uint64_t mask; /* of registers, by the width of addresses */
    bool while_equal;
    struct element to, from; /* by RDI, by RSI */
};

static bool kind_of(const struct insn *insn, enum kind *kind)
{
    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
        *kind = MOVS;
        return true;
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
        *kind = STOS;
        return true;
    case ZYDIS_MNEMONIC_LODSB:
    case ZYDIS_MNEMONIC_LODSW:
    case ZYDIS_MNEMONIC_LODSD:
    case ZYDIS_MNEMONIC_LODSQ:
        *kind = LODS;
        return true;
    case ZYDIS_MNEMONIC_CMPSB:
    case ZYDIS_MNEMONIC_CMPSW:
    case ZYDIS_MNEMONIC_CMPSD:
    case ZYDIS_MNEMONIC_CMPSQ:
        *kind = CMPS;
        return true;
    case ZYDIS_MNEMONIC_SCASB:
    case ZYDIS_MNEMONIC_SCASW:
    case ZYDIS_MNEMONIC_SCASD:
    case ZYDIS_MNEMONIC_SCASQ:
        *kind = SCAS;
        return true;
    default:
        return false;
    }
}

/* Whether a segment of 32-bit code is all of its address space, to be read and written. */
static bool is_flat(const struct kvm_segment *segment)
{
    const unsigned data = 2, kind = 0xe; /* writable, not expand-down, no code (AMD64 APM 2, 4.7) */

    return !segment->unusable && segment->base == 0 && segment->limit == UINT32_MAX &&
           (segment->type & kind) == data;
}

static bool decode(struct vcpu *vcpu, const struct kvm_sregs *sregs, struct string_op *op)
{
    const struct kvm_regs *regs = vcpu->regs;
    struct insn insn;

    *op = (struct string_op){.mask = sregs->cs.l ? UINT64_MAX : UINT32_MAX};
    if ((!sregs->cs.l && !sregs->cs.db) ||
        !insn_decode(&vcpu->vm->memory, sregs, linear_rip(regs->rip, &sregs->cs), &insn) ||
        !repeat_is(&insn) || insn.info.meta.category != ZYDIS_CATEGORY_STRINGOP ||
        insn.info.address_width != (sregs->cs.l ? 64 : 32) || !kind_of(&insn, &op->kind))
        return false;
    op->while_equal = !(insn.info.attributes & ZYDIS_ATTRIB_HAS_REPNE);
    for (unsigned i = 0; i < insn.info.operand_count; i++) {
        const ZydisDecodedOperand *operand = &insn.operands[i];
        if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY)
            continue;
        const bool by_rdi =
            operand->mem.base == ZYDIS_REGISTER_RDI || operand->mem.base == ZYDIS_REGISTER_EDI;
        struct element *element = by_rdi ? &op->to : &op->from;
        element->used = true;
        op->size = operand->size / 8;
        const struct kvm_segment *segment = insn_segment(&insn, operand, sregs);
        if ((!sregs->cs.l && !is_flat(segment)) ||
            !insn_address(&insn, operand, regs, sregs, &element->va))
            return false;
    }
    op->step = regs->rflags & RFLAGS_DF ? -(uint64_t)op->size : op->size;
    return op->size;
}

/*
 * Find the page of an element. False where the CPU may fault, or mark a page table, with it. User
 * code's does not where the table says that the page was used so before. Kernel code's pages of
 * user memory it may not touch (SMAP): only one that the iteration before has used.
 */
static bool find_page(const struct guest_memory *m, const struct kvm_sregs *sregs,
                      const struct string_op *op, bool write, struct element *element)
{
    const uint64_t page = element->va & ~(uint64_t)(PAGE_BYTES - 1),
                   before = element->va - op->step;
    struct translation t;

    if (!element->used)
        return true;
    if (element->va > op->mask) /* the next one is at the other end */
        return false;
    if (element->va + op->size - 1 - page >= PAGE_BYTES || !walk(m, sregs->cr3, element->va, &t) ||
        !t.accessed || (write && (!t.writable || !t.dirty)) || (sregs->ss.dpl == 3 && !t.user))
        return false;
    if (sregs->ss.dpl != 3 &&
        (before - page >= PAGE_BYTES || before + op->size - 1 - page >= PAGE_BYTES))
        return false;
    element->gpa = t.gpa;
    element->page = guest_memory_at(m, t.gpa & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES);
    return element->page;
}

/* How many elements lie in the page from this one on. */
static uint64_t left_in_page(const struct string_op *op, const struct element *element)
{
    const uint64_t offset = element->va & (PAGE_BYTES - 1);

    if (!element->used)
        return UINT64_MAX;
    return op->step == op->size ? (PAGE_BYTES - offset) / op->size : offset / op->size + 1;
}

static void *at(const struct element *element)
{
    return element->page + (element->va & (PAGE_BYTES - 1));
}

static void advance(const struct string_op *op, struct element *element)
{
    element->va += op->step;
    element->gpa += op->step;
}

/* An element is written; whether that changes anything that is watched. */
static bool write_element(const struct string_op *op, const struct watchpoint *watched,
                          const uint8_t *value)
{
    uint8_t *to = at(&op->to);
    bool changes = false;

    for (unsigned i = 0; watched && i < op->size; i++)
        for (const struct watchpoint *w = to[i] != value[i] ? watched : NULL; w; w = w->next)
            changes |= op->to.gpa + i - w->gpa < w->len;
    memcpy(to, value, op->size);
    return changes;
}

/* The status flags that a comparison leaves (AMD64 APM 3, CMP), in rflags. */
static uint64_t compared(uint64_t rflags, uint64_t a, uint64_t b, unsigned size)
{
    const unsigned top = 8 * size - 1;
    const uint64_t mask = size == 8 ? UINT64_MAX : (1ull << 8 * size) - 1;
    const uint64_t difference = (a - b) & mask;
    const uint64_t even = !__builtin_parity((unsigned)(difference & 0xff));

    return (rflags & ~RFLAGS_STATUS) | (a < b) | even << 2 | ((a ^ b ^ difference) & 0x10) |
           (uint64_t)(difference == 0) << 6 | (difference >> top & 1) << 7 |
           (((a ^ b) & (a ^ difference)) >> top & 1) << 11;
}

/* One iteration; false: it is the last one by what it compares, and not done. */
static bool iterate(struct string_op *op, const struct watchpoint *watched, struct kvm_regs *regs,
                    bool *changed)
{
    uint64_t value = regs->rax, other = 0;

    if (op->from.used) {
        value = 0;
        memcpy(&value, at(&op->from), op->size);
    }
    switch (op->kind) {
    case MOVS:
    case STOS:
        *changed = write_element(op, watched, (const uint8_t *)&value);
        break;
    case LODS:
        if (op->size == 4)
            regs->rax = value;
        else
            memcpy(&regs->rax, &value, op->size);
        break;
    case CMPS:
    case SCAS:
        if (op->size < 8)
            value &= (1ull << 8 * op->size) - 1;
        memcpy(&other, at(&op->to), op->size);
        if ((value == other) != op->while_equal)
            return false;
        regs->rflags = compared(regs->rflags, value, other, op->size);
        break;
    }
    advance(op, &op->to);
    advance(op, &op->from);
    return true;
}

/* Whether what an iteration does is only what the instruction says. */
static bool is_plain(struct vcpu *vcpu)
{
    return !(vcpu->regs->rflags & RFLAGS_TF) && !vcpu_event_pending(vcpu) &&
           !guest_debug_is_on(vcpu->fd);
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Those to the end of the pages where both elements are, at most so many; *ends: the next one is
 * the CPU's to do, or the last one changed watched memory. */
static uint64_t run_in_pages(struct string_op *op, const struct vcpu *vcpu,
                             const struct kvm_sregs *sregs, const struct watchpoint *watched,
                             uint64_t most, struct kvm_regs *regs, bool *ends)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    const bool writes = op->kind == MOVS || op->kind == STOS;
    uint64_t done = 0;
    bool changed = false;

    *ends = true;
    if (!find_page(m, sregs, op, writes, &op->to) || !find_page(m, sregs, op, false, &op->from) ||
        (writes && ((op->to.va ^ linear_rip(regs->rip, &sregs->cs)) & ~(PAGE_BYTES - 1ull)) == 0))
        return 0;
    most = less_of(most, less_of(left_in_page(op, &op->to), left_in_page(op, &op->from)));
    if (writes)
        written_also(vcpu->vm, op->to.page);
    while (done < most && !changed && iterate(op, watched, regs, &changed))
        done++;
    *ends = changed || done < most;
    return done;
}

uint64_t repeat_run(struct vcpu *vcpu, const struct watchpoint *watched, uint64_t most)
{
    struct kvm_regs regs = *vcpu->regs;
    struct kvm_sregs sregs;
    struct string_op op;
    uint64_t done = 0;
    bool ends = false;

    vcpu_get_sregs(vcpu, &sregs);
    if (!decode(vcpu, &sregs, &op) || (regs.rcx & op.mask) < 2 || !is_plain(vcpu))
        return 0;
    most = less_of(less_of(most, MOST_AT_ONCE), (regs.rcx & op.mask) - 1);
    while (done < most && !ends)
        done += run_in_pages(&op, vcpu, &sregs, watched, most - done, &regs, &ends);
    if (!done)
        return 0;
    regs.rcx = (regs.rcx - done) & op.mask;
    if (op.to.used)
        regs.rdi = (regs.rdi + done * op.step) & op.mask;
    if (op.from.used)
        regs.rsi = (regs.rsi + done * op.step) & op.mask;
    vcpu_set_regs(vcpu, &regs);
    return done;
}

bool repeat_has_written(struct vcpu *vcpu, uint64_t gpa)
{
    struct kvm_sregs sregs;
    struct translation t;
    struct insn insn;
    uint64_t to;

    vcpu_get_sregs(vcpu, &sregs);
    if (!sregs.cs.l || !insn_decode(&vcpu->vm->memory, &sregs, vcpu->regs->rip, &insn) ||
        !repeat_is(&insn) || insn.operands[0].type != ZYDIS_OPERAND_TYPE_MEMORY ||
        !insn_address(&insn, &insn.operands[0], vcpu->regs, &sregs, &to))
        return false;
    const unsigned size = insn.operands[0].size / 8;
    to -= vcpu->regs->rflags & RFLAGS_DF ? -(uint64_t)size : size;
    return walk(&vcpu->vm->memory, sregs.cr3, to, &t) && gpa - t.gpa < size;
}
