/* Conditions of breakpoints, and moving their comparison into the guest: see
 * vmm/points/breakpoint.h. */
#include <stdlib.h>
#include <string.h>

#include "base/now.h"
#include "mmu/walk.h"
#include "recording/event.h"
#include "vmm/points/breakpoint.h"

/* Passes of kernel code that could be written to before the comparison moves into the guest: two,
 * to see whether it is. */
#define SLOW_PASSES_WRITABLE 2
/* A trace costs more than a pass: a loop that makes a system call in each gets so many short traces
 * in a row, and no more for so many passes. */
#define TRACES_IN_VAIN 4
#define TRACE_SHORT_NS 1000000ull
#define TRACE_PAUSE    256

/* An exit of a trace, for code that is not copied yet, costs about as much as a pass without one.
 * So that few passes with much code between them are not much dearer than without traces, and many
 * not than with the best one: after so many exits the code runs on without, for as many passes, and
 * then with a trace that may take twice as many. */
#define TRACE_EXITS 8u

struct breakpoint_filter {
    uint64_t last[REG_COUNT]; /* registers at the previous pass */
    unsigned passes;
    unsigned traces_at;       /* the pass from which on traces are tried again */
    unsigned in_vain;         /* traces in a row that the code soon left */
    uint64_t traced_ns;       /* when the last one began; 0: none yet */
    unsigned exits;           /* that a trace may take */
    unsigned exits_left;      /* of these */
    bool rewritten;           /* the code changes from pass to pass */
    uint8_t page[PAGE_BYTES]; /* of the place, at the previous pass */
};

struct breakpoint_filter *breakpoint_filter_new(const struct vcpu *vcpu)
{
    struct breakpoint_filter *f = calloc(1, sizeof *f);

    _Static_assert(sizeof f->last == sizeof *vcpu->regs, "all registers");
    if (f) {
        memcpy(f->last, vcpu->regs, sizeof f->last);
        f->exits_left = f->exits = TRACE_EXITS;
    }
    return f;
}

/* False also for memory that is not there. */
static bool is_true(const struct breakpoints *set, const struct trace_condition *c,
                    const struct kvm_regs *regs, const struct kvm_sregs *sregs, bool *known)
{
    uint64_t value;

    *known = true;
    if (!c->memory)
        return ((const uint64_t *)regs)[c->reg] == c->value;
    *known = walk_read(&set->vcpu->vm->memory, sregs->cr3, c->va, &value, 8) == 8;
    return *known && value == c->value;
}

bool breakpoint_conditions_hold(const struct breakpoints *set, const struct breakpoint *b,
                                const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    bool known;

    for (unsigned i = 0; i < b->conditions; i++)
        if (!is_true(set, &b->condition[i], regs, sregs, &known))
            return false;
    return true;
}

/* A fault of the comparison would leave its frame on the stack of kernel code: there, only memory
 * of the kernel's own is looked at. User memory may be taken away, or may not be touched (SMAP). */
static bool may_look_at(const struct breakpoints *set, const struct kvm_sregs *sregs, uint64_t va)
{
    struct translation t;

    return sregs->ss.dpl == 3 || (walk(&set->vcpu->vm->memory, sregs->cr3, va, &t) && !t.user);
}

/* Whether what a breakpoint puts into memory is in that word: a HLT in code of the guest's, which
 * it has just written perhaps, or an alarm in its count of entries. */
static bool shows_breakpoint(const struct breakpoints *set, const struct kvm_sregs *sregs,
                             uint64_t va)
{
    struct translation t;

    for (unsigned i = 0; i < 8; i += 7) { /* it may lie on two pages */
        if (!walk(&set->vcpu->vm->memory, sregs->cr3, va + i, &t))
            continue;
        const uint64_t gpa = t.gpa - i;
        for (const struct breakpoint *b = set->first; b; b = b->next)
            if (b->entry_of ? b->entry_of->entries_gpa + 7 - gpa < 15
                            : b->means == &breakpoint_hlt && b->gpa - gpa < 8)
                return true;
    }
    return false;
}

/*
 * The conditions that the guest itself can look at. The first is one that is false now, if possible
 * one that did not change since the last pass: an outer loop's counter says no for the whole of the
 * inner loop. 0 when none of them is false now.
 */
static unsigned order_conditions(const struct breakpoints *set, const struct breakpoint *b,
                                 const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                                 struct trace_condition out[TRACE_CONDITIONS])
{
    const uint64_t *now = (const uint64_t *)regs;
    unsigned count = 0, first = 0, best = 0;
    bool known;

    for (unsigned i = 0; i < b->conditions; i++) {
        const struct trace_condition *c = &b->condition[i];
        if (c->memory && (!may_look_at(set, sregs, c->va) || shows_breakpoint(set, sregs, c->va)))
            continue;
        unsigned score = is_true(set, c, regs, sregs, &known) || !known ? 0
                         : c->memory                                    ? 1
                         : now[c->reg] != b->filter->last[c->reg]       ? 2
                                                                        : 3;
        if (score > best) {
            best = score;
            first = count;
        }
        out[count++] = *c;
    }
    if (!best)
        return 0;
    struct trace_condition quick = out[first];
    out[first] = out[0];
    out[0] = quick;
    return count;
}

/*
 * Whether the kernel code's page changed since the previous pass. A copy of code that rewrites
 * itself would be stale at once (that of user code checks itself). What changes more rarely is not
 * noticed: kernels serialize after they patched themselves, which ends the trace.
 */
static bool is_rewritten(const struct breakpoint *b)
{
    struct breakpoint_filter *f = b->filter;
    if (!b->at) /* a debug register whose page is not known */
        return true;
    const uint8_t *now = b->at - (b->gpa & (PAGE_BYTES - 1));
    f->rewritten |= f->passes > 1 && memcmp(now, f->page, sizeof f->page);
    memcpy(f->page, now, sizeof f->page);
    return f->rewritten;
}

/* Whether a trace promises to be worth its costs. */
static bool is_worth_it(const struct breakpoints *set, const struct breakpoint *b,
                        const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    struct breakpoint_filter *f = b->filter;
    struct translation t;

    if (!f->exits_left) {
        f->traces_at = f->passes + f->exits;
        f->exits_left = f->exits *= 2;
    }
    if (f->passes < f->traces_at || (b->cpl == 0 && is_rewritten(b)))
        return false;
    if (f->passes < SLOW_PASSES_WRITABLE && b->cpl == 0 &&
        walk(&set->vcpu->vm->memory, sregs->cr3, regs->rip, &t) && t.writable)
        return false;
    const uint64_t now = host_now_ns();
    if (now - f->traced_ns > TRACE_SHORT_NS)
        f->in_vain = 0;
    f->traced_ns = now;
    if (++f->in_vain <= TRACES_IN_VAIN)
        return true;
    f->in_vain = 0;
    f->traces_at = f->passes + TRACE_PAUSE;
    return false;
}

void breakpoint_filter_pause(struct breakpoints *set)
{
    struct breakpoint_filter *f = set->traced ? set->traced->filter : NULL;

    if (f && f->traces_at < f->passes + 2)
        f->traces_at = f->passes + 2;
}

bool breakpoint_filter_may_extend(const struct breakpoints *set)
{
    struct breakpoint_filter *f = set->traced ? set->traced->filter : NULL;

    if (!f || set->counted)
        return true;
    if (f->exits_left)
        f->exits_left--;
    return f->exits_left;
}

bool breakpoint_filter_start(struct breakpoints *set, struct breakpoint *b,
                             const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    struct breakpoint_filter *f = b->filter;
    struct trace_condition conditions[TRACE_CONDITIONS];
    bool started = false;

    f->passes++;
    if (is_worth_it(set, b, regs, sregs)) {
        const struct trace_goal goal = {
            .condition = conditions,
            .conditions = order_conditions(set, b, regs, sregs, conditions),
            .countdown = set->counted ? &set->counted->countdown : NULL,
            .written = b->written,
            .hlt_on_site = b->means == &breakpoint_hlt,
        };
        /* Where all conditions are true and stops() says no, none tells passes apart. */
        started = (goal.conditions || (set->counted && !b->conditions)) &&
                  trace_start(set->vcpu, set->hook, regs, sregs, &goal);
    }
    memcpy(f->last, regs, sizeof f->last);
    return started;
}
