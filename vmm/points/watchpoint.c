/* Watched memory: see struct watchpoint in vmm/points/breakpoint.h. */
#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "mmu/walk.h"
#include "vmm/kvm/guest_debug.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/stepper.h"
#include "vmm/points/trace/trace.h"
#include "vmm/points/watchpoint.h"
#include "vmm/points/written.h"

/* The pages of all, ascending and each once. Returns how many; more than fit: VM_PROTECTED_MAX + 1.
 */
static unsigned pages_of(const struct breakpoints *set, uint64_t pages[VM_PROTECTED_MAX])
{
    unsigned count = 0;

    for (const struct watchpoint *w = set->watched; w; w = w->next) {
        const uint64_t page = w->gpa & ~(uint64_t)(PAGE_BYTES - 1);
        unsigned at = 0;
        while (at < count && pages[at] < page)
            at++;
        if (at < count && pages[at] == page)
            continue;
        if (count == VM_PROTECTED_MAX)
            return count + 1;
        memmove(&pages[at + 1], &pages[at], (count - at) * sizeof *pages);
        pages[at] = page;
        count++;
    }
    return count;
}

int breakpoints_rest(struct breakpoints *set, struct err *e)
{
    if (!set->protecting)
        return 0;
    set->protecting = false;
    return vm_protect(set->vcpu->vm, NULL, 0, e);
}

int watchpoints_protect(struct breakpoints *set, struct err *e)
{
    uint64_t pages[VM_PROTECTED_MAX];

    if (set->protecting || !set->watched)
        return 0;
    set->protecting = true;
    return vm_protect(set->vcpu->vm, pages, pages_of(set, pages), e);
}

bool breakpoints_can_watch(const struct vcpu *vcpu, uint64_t gpa, unsigned len)
{
    const struct guest_memory *m = &vcpu->vm->memory;

    return !vcpu->vm->ownership && len && guest_memory_at(m, gpa, len) &&
           (gpa & (PAGE_BYTES - 1)) + len <= PAGE_BYTES;
}

int breakpoints_watch(struct breakpoints *set, struct watchpoint *w, struct err *e)
{
    struct vm *vm = set->vcpu->vm;
    uint64_t pages[VM_PROTECTED_MAX];
    struct kvm_sregs sregs;
    struct translation t;

    vcpu_get_sregs(set->vcpu, &sregs);
    assert(w->len && (w->va & (PAGE_BYTES - 1)) + w->len <= PAGE_BYTES);
    if (!w->gpa && walk(&vm->memory, sregs.cr3, w->va, &t))
        w->gpa = t.gpa;
    if (!w->gpa || !guest_memory_at(&vm->memory, w->gpa, w->len))
        return err_set(e, STATUS_ERROR, "%#llx cannot be watched: no memory is mapped there now",
                       (unsigned long long)w->va);
    if (!breakpoints_can_watch(set->vcpu, w->gpa, w->len))
        return err_set(e, STATUS_ERROR,
                       "%#llx cannot be watched: its CPUs ran at the same time (--smp crew)",
                       (unsigned long long)w->va);
    w->next = set->watched;
    set->watched = w;
    if (breakpoints_rest(set, e) < 0) {
        set->watched = w->next;
        return -1;
    }
    if (pages_of(set, pages) <= VM_PROTECTED_MAX)
        return 0;
    set->watched = w->next;
    return err_set(e, STATUS_ERROR, "more than %u pages cannot be watched", VM_PROTECTED_MAX);
}

void breakpoints_unwatch(struct breakpoints *set, struct watchpoint *w)
{
    struct err ignored;

    breakpoints_rest(set, &ignored);
    for (struct watchpoint **at = &set->watched; *at; at = &(*at)->next) {
        if (*at != w)
            continue;
        *at = w->next;
        return;
    }
}

/* ---- changes ---- */

static uint64_t digest(const struct breakpoints *set, const struct watchpoint *w)
{
    return XXH3_64bits(guest_memory_at(&set->vcpu->vm->memory, w->gpa, w->len), w->len);
}

void watchpoints_see(struct breakpoints *set)
{
    for (struct watchpoint *w = set->watched; w; w = w->next) {
        w->seen = digest(set, w);
        w->hit = false;
    }
}

bool watchpoints_changed(struct breakpoints *set)
{
    bool any = false;

    for (struct watchpoint *w = set->watched; w; w = w->next) {
        const uint64_t now = digest(set, w);
        w->hit = now != w->seen;
        w->seen = now;
        any |= w->hit;
    }
    return any;
}

int breakpoints_complete(struct breakpoints *set, struct err *e)
{
    for (struct watchpoint *w = set->watched; w; w = w->next)
        w->before = digest(set, w);
    if (vcpu_complete(set->vcpu, e) < 0)
        return -1;
    for (struct watchpoint *w = set->watched; w; w = w->next)
        w->stored |= digest(set, w) != w->before;
    return 0;
}

void breakpoints_forget_stores(struct breakpoints *set)
{
    for (struct watchpoint *w = set->watched; w; w = w->next)
        w->stored = false;
}

bool watchpoints_stored(const struct breakpoints *set)
{
    for (const struct watchpoint *w = set->watched; w; w = w->next)
        if (w->stored)
            return true;
    return false;
}

bool breakpoints_stored(struct breakpoints *set)
{
    const bool any = watchpoints_stored(set);

    for (struct watchpoint *w = set->watched; w; w = w->next)
        w->hit |= w->stored;
    breakpoints_forget_stores(set);
    return any;
}

int watchpoints_do_write(struct breakpoints *set, const struct vcpu_exit *exit, struct err *e)
{
    if (!set->protecting || exit->kind != EXIT_MMIO_WRITE ||
        !guest_memory_at(&set->vcpu->vm->memory, exit->at, exit->size))
        return 0;
    return vcpu_do_write(set->vcpu, e) < 0 ? -1 : 1;
}

/* ---- what writes to a protected page ---- */

/* The value that a MOV of general registers or of a constant stores; false: it is none. */
static bool stored_value(const struct insn *insn, const struct kvm_regs *regs, uint64_t *value)
{
    const ZydisDecodedOperand *to = &insn->operands[0], *from = &insn->operands[1];

    if (insn->info.mnemonic != ZYDIS_MNEMONIC_MOV || to->type != ZYDIS_OPERAND_TYPE_MEMORY)
        return false;
    if (from->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
        *value = from->imm.value.u;
        return true;
    }
    switch (ZydisRegisterGetClass(from->reg.value)) {
    case ZYDIS_REGCLASS_GPR8:
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
        *value =
            insn_register(regs, from->reg.value) >>
            (from->reg.value >= ZYDIS_REGISTER_AH && from->reg.value <= ZYDIS_REGISTER_BH ? 8 : 0);
        return true;
    default: /* of a segment */
        return false;
    }
}

/* Where a store to one page goes that does nothing else: the CPU has found that it may, and need
 * not note in a page table that it did. */
static uint8_t *store_goes_to(const struct vcpu *vcpu, const struct insn *insn,
                              const struct kvm_sregs *sregs)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    const unsigned size = insn->operands[0].size / 8;
    struct translation code, to;
    uint64_t va;

    if (!insn_address(insn, &insn->operands[0], vcpu->regs, sregs, &va) ||
        (va & (PAGE_BYTES - 1)) + size > PAGE_BYTES || !walk(m, sregs->cr3, va, &to) ||
        !to.accessed || !to.dirty || !to.writable || (sregs->ss.dpl == 3 && !to.user))
        return NULL;
    if (!trace_is_in_place(vcpu->vm) && (!walk(m, sregs->cr3, insn->va, &code) || !code.accessed))
        return NULL;
    return guest_memory_at(m, to.gpa, size);
}

/* The instruction where 64-bit code stands, also where that is a trace. */
static bool decode_here(const struct vcpu *vcpu, const struct kvm_sregs *sregs, struct insn *insn)
{
    const uint64_t rip = vcpu->regs->rip;
    size_t left;
    const uint8_t *copy = trace_code_at(vcpu->vm, rip, &left);

    if (copy)
        return insn_decode_bytes(rip, copy, left < INSN_MAX ? left : INSN_MAX, insn);
    return insn_decode(&vcpu->vm->memory, sregs, rip, insn);
}

static bool is_watched_page(const struct breakpoints *set, const uint8_t *at)
{
    for (const struct watchpoint *w = set->watched; w; w = w->next) {
        const uint8_t *page = guest_memory_at(&set->vcpu->vm->memory,
                                              w->gpa & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES);
        if ((size_t)(at - page) < PAGE_BYTES)
            return true;
    }
    return false;
}

bool watchpoints_store(struct breakpoints *set)
{
    struct vcpu *vcpu = set->vcpu;
    struct kvm_regs regs = *vcpu->regs;
    struct kvm_sregs sregs;
    struct insn insn;
    uint64_t value;

    vcpu_get_sregs(vcpu, &sregs);
    if (!sregs.cs.l || (regs.rflags & RFLAGS_TF) || !decode_here(vcpu, &sregs, &insn) ||
        !stored_value(&insn, &regs, &value))
        return false;
    uint8_t *to = store_goes_to(vcpu, &insn, &sregs);
    if (!to || !is_watched_page(set, to) || !vcpu_is_settled(vcpu) || guest_debug_is_on(vcpu->fd))
        return false;
    memcpy(to, &value, insn.operands[0].size / 8);
    written_also(vcpu->vm, to);
    regs.rip += insn.info.length;
    regs.rflags &= ~RFLAGS_RF;
    vcpu_set_regs(vcpu, &regs);
    return true;
}

static bool is_to_take(const struct breakpoints *set)
{
    return vcpu_event_pending(set->vcpu) || vcpu_nmi_pending(set->vcpu);
}

/* What is about to be taken before the next instruction, exactly: its frame is the guest's. */
static enum breakpoint_stop take_event(struct breakpoints *set, struct vcpu_exit *exit,
                                       struct err *e)
{
    struct stepper stepper;
    struct step step;
    bool kicked = false;
    int rc;

    stepper_init(&stepper, set->vcpu);
    do {
        set->exits++;
        rc = stepper_step(&stepper, &step, exit, e);
        kicked |= (rc == 0 && step.kind == STEP_KICK) || set->vcpu->kick_passed;
    } while (rc == 0 && step.kind == STEP_KICK);
    stepper_close(&stepper);
    if (rc < 0)
        return BREAKPOINT_FAILED;
    breakpoints_keep_kick(set, kicked);
    if (watchpoints_changed(set))
        return BREAKPOINT_HIT;
    return step.kind == STEP_EXIT ? BREAKPOINT_EXIT : BREAKPOINT_NONE;
}

enum breakpoint_stop watchpoints_let_write(struct breakpoints *set, struct vcpu_exit *exit,
                                           struct err *e)
{
    if (breakpoints_rest(set, e) < 0)
        return BREAKPOINT_FAILED;
    return is_to_take(set) ? take_event(set, exit, e) : breakpoints_leave(set, exit, e);
}

enum breakpoint_stop watchpoints_stop_here(struct breakpoints *set, struct vcpu_exit *exit,
                                           struct err *e)
{
    const struct stepper stepper = {.vcpu = set->vcpu};
    enum breakpoint_stop stop = BREAKPOINT_NONE;

    if (is_to_take(set) && stepper_can(&stepper))
        stop = breakpoints_rest(set, e) < 0 ? BREAKPOINT_FAILED : take_event(set, exit, e);
    if (stop == BREAKPOINT_EXIT || stop == BREAKPOINT_FAILED) /* the next run stops */
        return stop;
    breakpoints_stored(set); /* behind take_event(), which has changes of its own */
    return BREAKPOINT_HIT;
}
