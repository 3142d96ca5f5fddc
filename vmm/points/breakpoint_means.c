/* How breakpoints are set: see vmm/points/breakpoint.h. */
#include <string.h>

#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/kvm/debug_registers.h"
#include "vmm/kvm/guest_debug.h"
#include "vmm/points/breakpoint.h"

static bool always(struct vm *vm, unsigned cpl)
{
    (void)vm;
    (void)cpl;
    return true;
}

static bool any_has_room(const struct breakpoints *set, const struct breakpoint *b)
{
    (void)set;
    (void)b;
    return true;
}

/* ---- register ---- */

/* Not for a landing, which no host has been seen to make by one yet. */
static bool register_has_room(const struct breakpoints *set, const struct breakpoint *b)
{
    unsigned used = 0;

    if (!set->only && !b->patient)
        return false;
    for (const struct breakpoint *other = set->first; other; other = other->next)
        used += other->means == &breakpoint_register;
    return used < VCPU_DEBUG_REGISTERS && !guest_debug_is_on(set->vcpu->fd);
}

static void register_arm(struct breakpoints *set, struct breakpoint *b)
{
    b->slot = vcpu_add_debug_register(set->vcpu, b->va);
}

static void register_disarm(struct breakpoints *set, struct breakpoint *b)
{
    vcpu_remove_debug_register(set->vcpu, b->slot);
}

static bool register_is_hit(const struct breakpoints *set, const struct breakpoint *b,
                            const struct vcpu_exit *exit, struct kvm_regs *regs,
                            struct kvm_sregs *sregs)
{
    if (exit->kind != EXIT_STEP)
        return false;
    *regs = *set->vcpu->regs;
    vcpu_get_sregs(set->vcpu, sregs);
    return linear_rip(regs->rip, &sregs->cs) == b->va;
}

const struct breakpoint_means breakpoint_register = {
    .name = "register",
    .works = debug_registers_work,
    .has_room = register_has_room,
    .arm = register_arm,
    .disarm = register_disarm,
    .is_hit = register_is_hit,
};

/* ---- hlt ---- */

static bool hlt_has_room(const struct breakpoints *set, const struct breakpoint *b)
{
    return b->cpl == 0 || b->patient || set->hook->rip;
}

static void hlt_arm(struct breakpoints *set, struct breakpoint *b)
{
    (void)set;
    b->saved_len = (unsigned)(PAGE_BYTES - (b->gpa & (PAGE_BYTES - 1)));
    if (b->saved_len > BREAKPOINT_SAVED)
        b->saved_len = BREAKPOINT_SAVED;
    memcpy(b->saved, b->at, b->saved_len);
    *b->at = HLT;
}

/*
 * The guest may have freed the page (start-up code) and put data there, in which a byte that looks
 * like ours is its own: what lies behind it tells. Code that writes itself may change some of that,
 * but hardly more than three of four bytes.
 */
static void hlt_disarm(struct breakpoints *set, struct breakpoint *b)
{
    unsigned same = 0;

    (void)set;
    for (unsigned i = 1; i < b->saved_len; i++)
        same += b->at[i] == b->saved[i];
    if (*b->at == HLT && 4 * same >= b->saved_len - 1)
        *b->at = b->saved[0];
}

/* Whether an instruction at that address has our HLT as its opcode, behind prefixes: code may jump
 * into the middle of its instructions. Not where they begin on another page. */
static bool has_hlt_behind_prefixes(const struct guest_memory *m, const struct breakpoint *b,
                                    uint64_t gpa, bool code_64)
{
    const uint64_t ahead = b->gpa - gpa;
    const uint8_t *at;

    if (gpa > b->gpa || ahead >= INSN_MAX || gpa / PAGE_BYTES != b->gpa / PAGE_BYTES)
        return false;
    at = guest_memory_at(m, gpa, ahead + 1);
    return at && prefixes(at, ahead, code_64) == ahead;
}

static bool hlt_is_hit(const struct breakpoints *set, const struct breakpoint *b,
                       const struct vcpu_exit *exit, struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    struct translation t;
    /* Where both the kernel and programs may execute the page, the other one's hit is ours, too:
     * nobody else knows of this HLT. */
    const bool faulted = set->hook->rip && set->vcpu->regs->rip == set->hook->rip + 1;
    const unsigned cpl = faulted ? 3 : 0;
    const bool segments_known = cpl == b->cpl;

    return exit->kind == EXIT_HLT &&
           gphook_breakpoint(set->vcpu, set->hook, exit, cpl, segments_known ? b->cs : NULL,
                             segments_known ? b->ss : NULL, regs, sregs) &&
           walk(&set->vcpu->vm->memory, sregs->cr3, linear_rip(regs->rip, &sregs->cs), &t) &&
           (t.gpa == b->gpa ||
            (faulted && has_hlt_behind_prefixes(&set->vcpu->vm->memory, b, t.gpa, sregs->cs.l)));
}

const struct breakpoint_means breakpoint_hlt = {
    .name = "hlt",
    .works = always,
    .has_room = hlt_has_room,
    .arm = hlt_arm,
    .disarm = hlt_disarm,
    .is_hit = hlt_is_hit,
};

/* ---- entry ---- */

static void entry_arm(struct breakpoints *set, struct breakpoint *b)
{
    entry_alarm_set(&b->alarm, (uint64_t *)b->at, (uint64_t)breakpoint_entries_ahead(set, b));
}

static void entry_disarm(struct breakpoints *set, struct breakpoint *b)
{
    (void)set;
    entry_alarm_clear(&b->alarm);
}

static bool entry_is_hit(const struct breakpoints *set, const struct breakpoint *b,
                         const struct vcpu_exit *exit, struct kvm_regs *regs,
                         struct kvm_sregs *sregs)
{
    *regs = *set->vcpu->regs;
    vcpu_get_sregs(set->vcpu, sregs);
    return exit->kind == EXIT_HLT && entry_alarm_goes_off(&b->alarm, set->vcpu);
}

const struct breakpoint_means breakpoint_entry = {
    .name = "entry",
    .works = always,
    .has_room = any_has_room,
    .arm = entry_arm,
    .disarm = entry_disarm,
    .is_hit = entry_is_hit,
};

/* ---- step ---- */

static void step_nothing(struct breakpoints *set, struct breakpoint *b)
{
    (void)set;
    (void)b;
}

const struct breakpoint_means breakpoint_step = {
    .name = "step",
    .works = always,
    .has_room = any_has_room,
    .arm = step_nothing,
    .disarm = step_nothing,
};
