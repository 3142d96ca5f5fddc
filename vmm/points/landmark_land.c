/*
 * Landing on a forced point by its landmark: a breakpoint on its instruction from the previous sync
 * point on (vmm/points/breakpoint.h), comparing at every pass (vmm/points/fingerprint.h).
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/now.h"
#include "base/random.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/kvm/patience.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/clock.h"
#include "vmm/points/entry_count.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/written.h"

/* What passes are told apart by inside the guest: registers and memory words. Where all of
 * them are equal, fingerprint_matches() has the last word. */
static unsigned conditions_of(const struct landmark *l,
                              struct trace_condition out[TRACE_CONDITIONS])
{
    unsigned count = 0;

    _Static_assert(REG_COUNT + LANDMARK_PROBES <= TRACE_CONDITIONS, "all fit");
    for (unsigned reg = 0; reg < REG_COUNT; reg++)
        if (reg != REGISTER_RIP && reg != REGISTER_RFLAGS)
            out[count++] = (struct trace_condition){.reg = reg, .value = l->regs[reg]};
    for (unsigned i = 0; i < l->probes; i++)
        out[count++] = (struct trace_condition){
            .memory = true, .va = l->probe[i].va, .value = l->probe[i].value};
    return count;
}

static bool is_there(const struct breakpoint *b, struct vcpu *vcpu, const struct kvm_regs *regs,
                     const struct kvm_sregs *sregs)
{
    return fingerprint_matches(vcpu, regs, sregs, b->opaque);
}

struct breakpoint landmark_breakpoint(const struct landmark *l,
                                      struct trace_condition conditions[TRACE_CONDITIONS])
{
    return (struct breakpoint){
        .va = linear_rip(l->regs[REGISTER_RIP], &l->cs),
        .gpa = l->gpa,
        .cr3 = l->cr3,
        .cpl = l->cpl,
        .cs = &l->cs,
        .ss = &l->ss,
        .condition = conditions,
        .conditions = conditions_of(l, conditions),
        .stops = is_there,
        .opaque = (void *)(uintptr_t)l,
    };
}

/* Passes that are looked at in vain before the vCPU runs on to where pages are written. */
#define PASSES_IN_VAIN 16u
/* Exits for pages that are waited for, one after another, and for one of them: what writes to it
 * may leave it as it is. */
#define AWAITING_EXITS 256u
#define PAGE_EXITS     32u

/* A landing in progress. */
struct looked_for {
    const struct landmark *l;
    struct landing_passes *passes;
    uint64_t count;
    struct page_hint hint;
    uint64_t most; /* look at no more passes than so many in all; 0: at each */
    bool in_vain;  /* it was the last of these */
};

/* For the report of a landing that fails: what a pass that was nearly it had otherwise says more
 * than their number. */
static void note_nearest(struct looked_for *looked, const struct kvm_regs *regs,
                         const struct kvm_sregs *sregs)
{
    struct landing_passes *passes = looked->passes;
    const uint32_t other = fingerprint_other_registers(regs, looked->l);

    if (passes->nearest && __builtin_popcount(other) >= __builtin_popcount(passes->nearest_other))
        return;
    passes->nearest = looked->count;
    passes->nearest_other = other;
    passes->nearest_cr3 = sregs->cr3;
    memcpy(passes->nearest_regs, regs, sizeof passes->nearest_regs);
}

static bool is_found(const struct breakpoint *b, struct vcpu *vcpu, const struct kvm_regs *regs,
                     const struct kvm_sregs *sregs)
{
    struct looked_for *looked = b->opaque;
    const enum fingerprint_part part =
        fingerprint_compare(vcpu, regs, sregs, looked->l, &looked->hint);

    looked->count++;
    looked->passes->differed[part]++;
    if (part == FINGERPRINT_REGISTERS)
        note_nearest(looked, regs, sregs);
    if (part == FINGERPRINT_PAGES)
        looked->passes->page = looked->hint;
    looked->in_vain = part != FINGERPRINT_EQUAL && looked->count == looked->most;
    return part == FINGERPRINT_EQUAL || looked->in_vain;
}

/*
 * Whether the vCPU stands there already: it was kicked before it ran on from the last sync point.
 * To run it, even if a breakpoint stops it at once, may take what it has not got yet: where each
 * vCPU owns its pages, those with the page tables by which the breakpoint is fetched.
 */
static int is_there_already(struct vcpu *vcpu, const struct landmark *l, struct err *e)
{
    struct kvm_sregs sregs;

    if (vcpu_complete(vcpu, e) < 0)
        return -1;
    if (vcpu->regs->rip != l->regs[REGISTER_RIP] || !vcpu_is_settled(vcpu))
        return 0;
    vcpu_get_sregs(vcpu, &sregs);
    return sregs.ss.dpl == l->cpl && fingerprint_matches(vcpu, vcpu->regs, &sregs, l);
}

/* Whether that is all that the last run stopped at. */
static bool only_watch_hit(const struct breakpoints *set, const struct watchpoint *own)
{
    for (const struct breakpoint *b = set->first; b; b = b->next)
        if (b->hit)
            return false;
    for (const struct watchpoint *w = set->watched; w; w = w->next)
        if (w->hit && w != own)
            return false;
    return own->hit;
}

/*
 * The code at the place is written on the way there (a just-in-time compiler's, say): a breakpoint
 * that is set before is gone then. So each write to its page is followed, through whichever mapping
 * it comes, and the breakpoint set while the code is the landmark's.
 */
static enum breakpoint_stop run_watching(struct breakpoints *set, struct breakpoint *b,
                                         const struct landmark *l, const uint8_t *site,
                                         struct vcpu_exit *exit, struct err *e)
{
    struct watchpoint w = {.gpa = l->gpa, .len = 1};
    enum breakpoint_stop stop;

    if (breakpoints_watch(set, &w, e) < 0)
        return BREAKPOINT_FAILED;
    do {
        const bool is_code = *site == l->code[0];
        if (is_code && breakpoints_add(set, b, e) < 0) {
            stop = BREAKPOINT_FAILED;
            break;
        }
        stop = breakpoints_run(set, exit, e);
        if (is_code)
            breakpoints_remove(set, b);
    } while (stop == BREAKPOINT_HIT && !b->hit && only_watch_hit(set, &w));
    breakpoints_unwatch(set, &w);
    return stop;
}

/* The pages that may be written before a landmark, as breakpoints want them; NULL: they are not
 * known. The caller frees it. */
static uint64_t *pages_written(const struct vm *vm, const struct landmark *l)
{
    uint64_t *pages = l->exact ? calloc(vm_bitmap_words(vm), sizeof *pages) : NULL;

    if (pages)
        landmark_mark_pages(l, &vm->memory, pages);
    return pages;
}

/* Whether user code may write the code of a landmark on the way there, by any mapping: also with
 * what is there already, over the breakpoint. Following the writes to a page costs 50 ms in the
 * emulated host, and the landmark's list has pages that were written before, too. */
static bool may_be_written(const struct guest_memory *m, const struct breakpoint *b,
                           const struct landmark *l)
{
    return l->cpl == 3 && (!b->written || guest_memory_in(m, b->written, l->gpa)) &&
           walk_user_can_write(m, l->cr3, l->gpa);
}

/* Run to the landmark, whose code is at `site`. */
static enum breakpoint_stop run_to(struct clock *c, struct breakpoints *set, struct breakpoint *b,
                                   const struct landmark *l, const uint8_t *site,
                                   struct vcpu_exit *exit, struct err *e)
{
    enum breakpoint_stop stop;

    if (breakpoints_can_watch(c->vcpu, l->gpa, 1) &&
        (*site != l->code[0] || may_be_written(&c->vcpu->vm->memory, b, l)))
        return run_watching(set, b, l, site, exit, e);
    if (breakpoints_add(set, b, e) < 0)
        return BREAKPOINT_FAILED;
    stop = breakpoints_run(set, exit, e);
    breakpoints_remove(set, b);
    return stop;
}

/* To where the last entry into the kernel before the landmark is counted, without a look at what
 * lies before it. BREAKPOINT_NONE: the vCPU is there, or behind it. */
static enum breakpoint_stop run_to_entry(struct breakpoints *set, const struct landmark *l,
                                         struct vcpu_exit *exit, struct err *e)
{
    const struct guest_memory *m = &set->vcpu->vm->memory;
    struct breakpoint b = {.entry_of = l};
    enum breakpoint_stop stop;

    if (!entries_between(m, l))
        return BREAKPOINT_NONE;
    if (breakpoints_add(set, &b, e) < 0)
        return BREAKPOINT_FAILED;
    stop = breakpoints_run(set, exit, e);
    breakpoints_remove(set, &b);
    return stop == BREAKPOINT_HIT && !breakpoints_hit(set) ? BREAKPOINT_NONE : stop;
}

/* Run to the landmark, or to a pass that is in vain, by a breakpoint. */
static enum breakpoint_stop run_to_place(struct clock *c, struct breakpoints *set,
                                         struct breakpoint *b, const struct landmark *l,
                                         const uint8_t *site, struct vcpu_exit *exit, struct err *e)
{
    uint64_t *const written = pages_written(c->vcpu->vm, l);

    b->written = written;
    enum breakpoint_stop stop = run_to(c, set, b, l, site, exit, e);
    b->written = NULL;
    free(written);
    return stop;
}

/* ---- running on ---- */

/* Whether the landmark tells which of its pages are still to be written, and one more page can be
 * watched. */
static bool can_await_pages(const struct breakpoints *set, const struct landmark *l)
{
    unsigned watched = 0;

    for (const struct watchpoint *w = set->watched; w; w = w->next)
        watched++;
    return l->exact && l->pages && l->page_checks && !set->vcpu->vm->ownership &&
           set->interrupted && watched < VM_PROTECTED_MAX;
}

/* Run until the page changes. BREAKPOINT_NONE: it has, or is written again and again. */
static enum breakpoint_stop run_to_change(struct breakpoints *set, uint64_t gpa,
                                          struct vcpu_exit *exit, struct err *e)
{
    struct watchpoint w = {.gpa = gpa, .len = PAGE_BYTES};

    if (breakpoints_watch(set, &w, e) < 0)
        return BREAKPOINT_FAILED;
    set->most_exits = set->exits + PAGE_EXITS;
    enum breakpoint_stop stop = breakpoints_run(set, exit, e);
    set->most_exits = 0;
    if (stop == BREAKPOINT_HIT && only_watch_hit(set, &w))
        stop = BREAKPOINT_NONE;
    breakpoints_unwatch(set, &w);
    return stop;
}

/*
 * Where a page has other bytes than at the landmark, this is not the place, and no pass is before
 * that page is written. So the vCPU runs freely to where one of them changes, any of them, and on
 * to where one changes that still has to, and so on. Each time, half of them have become what they
 * are to be on the average: of some 3,000 pages a dozen are waited for. BREAKPOINT_NONE: the
 * landmark is where it stands now, or ahead.
 */
static enum breakpoint_stop run_by_pages(struct breakpoints *set, const struct landmark *l,
                                         struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = set->vcpu;
    struct page_to_come *pages = calloc(l->pages, sizeof *pages);
    enum breakpoint_stop stop = BREAKPOINT_NONE;
    uint64_t random = 1;

    if (!pages) {
        err_set(e, STATUS_ERROR, "out of memory");
        return BREAKPOINT_FAILED;
    }
    unsigned count = written_pages_to_come(vcpu->vm, fingerprint_frame(vcpu, l), l, pages);
    const uint64_t most = set->exits + AWAITING_EXITS;
    while (count && stop == BREAKPOINT_NONE && set->exits < most) {
        const unsigned awaited = (unsigned)(random_next(&random) % count);
        stop = run_to_change(set, pages[awaited].gpa, exit, e);
        pages[awaited] = pages[--count]; /* where it changes often, it tells little */
        const uint64_t frame = fingerprint_frame(vcpu, l);
        for (unsigned i = 0; i < count;)
            if (written_page_is_to_come(vcpu->vm, frame, &pages[i]))
                i++;
            else
                pages[i] = pages[--count];
    }
    free(pages);
    return stop;
}

/* Whether that breakpoint has stopped at a pass because there were too many. */
static bool looked_in_vain(enum breakpoint_stop stop, const struct breakpoint *b)
{
    const struct looked_for *looked = b->opaque;

    return stop == BREAKPOINT_HIT && b->hit && looked->in_vain;
}

/* Run to the landmark, by each pass or, where these are many, by the pages that are written. */
static enum breakpoint_stop run_to_pass(struct clock *c, struct breakpoints *set,
                                        struct breakpoint *b, const uint8_t *site,
                                        struct vcpu_exit *exit, struct err *e)
{
    struct looked_for *looked = b->opaque;
    enum breakpoint_stop stop = BREAKPOINT_NONE;

    if (can_await_pages(set, looked->l))
        looked->most = PASSES_IN_VAIN;
    do {
        looked->in_vain = false;
        stop = run_to_place(c, set, b, looked->l, site, exit, e);
        if (!looked_in_vain(stop, b))
            return stop;
        b->hit = false;
        looked->most *= 4;
        if (breakpoints_hit(set)) /* another one is there, too */
            return stop;
        stop = breakpoints_leave(set, exit, e); /* this pass has been looked at, by all */
        if (stop == BREAKPOINT_NONE)
            stop = run_by_pages(set, looked->l, exit, e);
    } while (stop == BREAKPOINT_NONE);
    return stop;
}

/* The same; *passed: it did not come before the next entry into the kernel, where the guest is now.
 */
static enum breakpoint_stop run_before_entry(struct clock *c, struct breakpoints *set,
                                             struct breakpoint *b, const struct landmark *l,
                                             const uint8_t *site, struct vcpu_exit *exit,
                                             bool *passed, struct err *e)
{
    struct breakpoint entry = {.entry_of = l, .entries_later = 1};

    *passed = false;
    if (!entries_known(&c->vcpu->vm->memory, l))
        return run_to_pass(c, set, b, site, exit, e);
    if (breakpoints_add(set, &entry, e) < 0)
        return BREAKPOINT_FAILED;
    enum breakpoint_stop stop = run_to_pass(c, set, b, site, exit, e);
    breakpoints_remove(set, &entry);
    *passed = stop == BREAKPOINT_HIT && entry.hit;
    return stop;
}

static enum clock_landing look_for(struct clock *c, const struct landmark *landmark,
                                   struct breakpoints *set, struct vcpu_exit *exit, struct err *e)
{
    static const enum clock_landing landing_of[] = {
        [BREAKPOINT_HIT] = LANDED,           [BREAKPOINT_EXIT] = LAND_MISSED,
        [BREAKPOINT_STOPPED] = LAND_STOPPED, [BREAKPOINT_LATE] = LAND_LATE,
        [BREAKPOINT_FAILED] = LAND_FAILED,
    };
    struct trace_condition conditions[TRACE_CONDITIONS];
    struct breakpoint b = landmark_breakpoint(landmark, conditions);
    struct looked_for looked = {.l = landmark, .passes = &c->stats.passes};
    const uint8_t *site = guest_memory_at(&c->vcpu->vm->memory, landmark->gpa, 1);

    b.stops = is_found;
    b.opaque = &looked;
    c->stats.passes = (struct landing_passes){0};
    if (!site || (*site != landmark->code[0] && !breakpoints_can_watch(c->vcpu, landmark->gpa, 1)))
        return LAND_CHANGED;
    c->stats.landings++;
    c->stats.exits -= set->exits;
    enum breakpoint_stop stop = run_to_entry(set, landmark, exit, e);
    const int there = stop == BREAKPOINT_NONE ? is_there_already(c->vcpu, landmark, e) : 0;
    bool passed = false;
    if (stop == BREAKPOINT_NONE && !there)
        stop = run_before_entry(c, set, &b, landmark, site, exit, &passed, e);
    c->stats.exits += set->exits;
    if (passed)
        return LAND_PASSED;
    if (there)
        breakpoints_begin(set); /* it has not run: what was hit before does not count here */
    if (there)
        return there < 0 ? LAND_FAILED : LANDED;
    return stop == BREAKPOINT_HIT && !b.hit ? LAND_BREAK : landing_of[stop];
}

/* A landing that is not by a user's breakpoints, and since when. */
struct lasting {
    const struct clock *clock;
    uint64_t began_ns;
};

static void tell_how_long(void *opaque)
{
    const struct lasting *l = opaque;

    l->clock->lasts(l->clock->lasts_opaque,
                    (unsigned)((host_now_ns() - l->began_ns) / 1000000000u));
}

enum clock_landing landmark_land(struct clock *c, const struct landmark *landmark,
                                 struct vcpu_exit *exit, const atomic_bool *interrupted,
                                 struct err *e)
{
    struct breakpoints own;
    struct patience patience;
    enum clock_landing landing;
    struct lasting lasting = {c, host_now_ns()};

    /* A user whose breakpoints are on the way, and may be slow, ends it when he likes. */
    if (c->breakpoints)
        return look_for(c, landmark, c->breakpoints, exit, e);
    if (patience_begin(&patience, c->patience, e) < 0)
        return LAND_FAILED;
    breakpoints_init(&own, c->vcpu, c->hook);
    own.interrupted = interrupted;
    own.give_up_ns = patience.until;
    if (c->lasts) {
        own.kicked = tell_how_long;
        own.kicked_opaque = &lasting;
    }
    landing = look_for(c, landmark, &own, exit, e);
    patience_end(&patience);
    return landing;
}
