/* Iterations of string instructions: see vmm/repeat.h. */
#include "vmm/repeat.h"

#include <string.h>
#include <sys/ioctl.h>

#include "mmu/walk.h"

#define REPEATED    (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)
#define RFLAGS_TF   (1ull << 8)
#define RFLAGS_DF   (1ull << 10)
#define DR7_ENABLED 0xffull

bool repeat_is(const struct insn *insn)
{
    return (insn->info.attributes & REPEATED) &&
           (insn->info.meta.category == ZYDIS_CATEGORY_STRINGOP ||
            insn->info.meta.category == ZYDIS_CATEGORY_IOSTRINGOP);
}

/* A REP MOVS or REP STOS at work. */
struct copying {
    bool has_source;
    unsigned size;     /* of an element */
    uint64_t step;     /* between elements, modulo 2^64 */
    uint64_t to, from; /* linear addresses of the next ones */
    uint64_t to_gpa;   /* of the next one */
    uint8_t *to_page;  /* host addresses */
    const uint8_t *from_page;
};

static bool decode(struct vcpu *vcpu, const struct kvm_sregs *sregs, struct copying *c)
{
    const struct kvm_regs *regs = vcpu->regs;
    struct insn insn;

    if ((!sregs->cs.l && !sregs->cs.db) ||
        !insn_decode(&vcpu->vm->memory, sregs, linear_rip(regs->rip, &sregs->cs), &insn) ||
        !repeat_is(&insn) || insn.info.meta.category != ZYDIS_CATEGORY_STRINGOP ||
        insn.info.address_width != (sregs->cs.l ? 64 : 32) || insn.info.operand_count < 2)
        return false;
    switch (insn.info.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_MOVSQ:
        c->has_source = true;
        break;
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
        c->has_source = false;
        break;
    default:
        return false;
    }
    c->size = insn.operands[0].size / 8;
    c->step = regs->rflags & RFLAGS_DF ? -(uint64_t)c->size : c->size;
    return insn_address(&insn, &insn.operands[0], regs, sregs, &c->to) &&
           (!c->has_source || insn_address(&insn, &insn.operands[1], regs, sregs, &c->from));
}

/* The page of the element at `at`, if that of the one before is the same and both lie within it. */
static uint8_t *same_page(const struct guest_memory *m, const struct kvm_sregs *sregs,
                          const struct copying *c, uint64_t at, bool write, uint64_t *gpa)
{
    const uint64_t page = at & ~(uint64_t)(PAGE_BYTES - 1), before = at - c->step;
    struct translation t;

    if ((at + c->size - 1 - page) >= PAGE_BYTES || before - page >= PAGE_BYTES ||
        before + c->size - 1 - page >= PAGE_BYTES || !walk(m, sregs->cr3, at, &t) || !t.accessed ||
        (write && !t.writable) || (sregs->ss.dpl == 3 && !t.user))
        return NULL;
    *gpa = t.gpa;
    return guest_memory_at(m, t.gpa & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES);
}

/* How many elements lie in the page from `at` on. */
static uint64_t left_in_page(const struct copying *c, uint64_t at)
{
    const uint64_t offset = at & (PAGE_BYTES - 1);

    return c->step == c->size ? (PAGE_BYTES - offset) / c->size : offset / c->size + 1;
}

/* An element is written; whether that changes anything that is watched. */
static bool write_element(const struct copying *c, const struct watchpoint *watched,
                          const uint8_t *value)
{
    uint8_t *to = c->to_page + (c->to & (PAGE_BYTES - 1));
    bool changes = false;

    for (unsigned i = 0; watched && i < c->size; i++)
        for (const struct watchpoint *w = to[i] != value[i] ? watched : NULL; w; w = w->next)
            changes |= c->to_gpa + i - w->gpa < w->len;
    memcpy(to, value, c->size);
    return changes;
}

/* Whether what an iteration does is only what the instruction says. */
static bool is_plain(struct vcpu *vcpu)
{
    struct kvm_debugregs debug;

    return !(vcpu->regs->rflags & RFLAGS_TF) && !vcpu_event_pending(vcpu) &&
           ioctl(vcpu->fd, KVM_GET_DEBUGREGS, &debug) == 0 && !(debug.dr7 & DR7_ENABLED);
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t repeat_run(struct vcpu *vcpu, const struct watchpoint *watched, uint64_t most)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_regs regs = *vcpu->regs;
    struct kvm_sregs sregs;
    struct copying c;
    uint64_t done = 0, from_gpa;
    bool changed = false;

    vcpu_get_sregs(vcpu, &sregs);
    const uint64_t mask =
        sregs.cs.l ? UINT64_MAX : UINT32_MAX; /* of registers, by the width of addresses */
    const uint64_t left = regs.rcx & mask, rip = linear_rip(regs.rip, &sregs.cs);
    if (left < 2 || !decode(vcpu, &sregs, &c) || !is_plain(vcpu))
        return 0;
    c.to_page = same_page(m, &sregs, &c, c.to, true, &c.to_gpa);
    if (!c.to_page || ((c.to ^ rip) & ~(uint64_t)(PAGE_BYTES - 1)) == 0)
        return 0;
    most = less_of(less_of(most, left - 1), left_in_page(&c, c.to));
    if (c.has_source) {
        c.from_page = same_page(m, &sregs, &c, c.from, false, &from_gpa);
        if (!c.from_page)
            return 0;
        most = less_of(most, left_in_page(&c, c.from));
    }
    guest_memory_mark(m, c.to_page, PAGE_BYTES);
    for (; done < most && !changed; done++) {
        uint8_t value[8];
        memcpy(value, c.has_source ? c.from_page + (c.from & (PAGE_BYTES - 1)) : (void *)&regs.rax,
               c.size);
        changed = write_element(&c, watched, value);
        c.to += c.step;
        c.to_gpa += c.step;
        c.from += c.step;
    }
    regs.rcx = (regs.rcx - done) & mask;
    regs.rdi = (regs.rdi + done * c.step) & mask;
    if (c.has_source)
        regs.rsi = (regs.rsi + done * c.step) & mask;
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
