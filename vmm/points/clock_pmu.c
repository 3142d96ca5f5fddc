/*
 * Forced points by a hardware counter of conditional branches that retire in guest mode: exact, at
 * any instruction, and quick to find again. Needs a CPU, a kernel and a hypervisor that let it
 * count exactly: open() makes sure (vmm/points/pmu/pmu_selftest.h).
 */
#include "vmm/points/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "mmu/insn.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/pmu/pmu_land.h"
#include "vmm/points/pmu/pmu_selftest.h"

struct pmu_clock {
    struct pmu_target target; /* its first member */
    struct clock *clock;
    struct pmu_perf perf;
    uint64_t count; /* as last read */
    uint64_t base;  /* at the last sync point */
};

static struct pmu_clock *of(struct clock *c)
{
    return c->own;
}

static int count_now(struct clock *c, struct err *e)
{
    struct pmu_clock *p = of(c);

    if (p->perf.counter.ops->read(&p->perf.counter, &p->count, e) < 0)
        return -1;
    c->branches = p->count - p->base;
    return 0;
}

/* ---- the vCPU, for landings ---- */

static struct clock *clock_of(struct pmu_target *t)
{
    return ((struct pmu_clock *)t)->clock;
}

static int target_run(struct pmu_target *t, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run(clock_of(t)->vcpu, exit, e);
}

static int target_step(struct pmu_target *t, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run_step(clock_of(t)->vcpu, exit, e);
}

/* A step has RFLAGS.TF set, which must not get into the frame of an interrupt or exception. */
static bool target_can_step(struct pmu_target *t)
{
    struct vcpu *vcpu = clock_of(t)->vcpu;
    struct kvm_sregs sregs;
    struct insn insn;

    vcpu_get_sregs(vcpu, &sregs);
    return !vcpu_event_pending(vcpu) &&
           insn_decode(&vcpu->vm->memory, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) &&
           vcpu_can_step(vcpu, &insn);
}

static bool target_matches(struct pmu_target *t, const struct landmark *l)
{
    struct vcpu *vcpu = clock_of(t)->vcpu;
    struct kvm_sregs sregs;

    if (vcpu->regs->rip != l->regs[REGISTER_RIP])
        return false;
    vcpu_get_sregs(vcpu, &sregs);
    return fingerprint_matches(vcpu, vcpu->regs, &sregs, l);
}

/* The landmark clock's way: from here on it has little left to go wrong. */
static enum clock_landing target_search(struct pmu_target *t, const struct landmark *l,
                                        struct vcpu_exit *exit, const atomic_bool *interrupted,
                                        struct err *e)
{
    struct clock *c = clock_of(t);
    enum clock_landing result = landmark_land(c, l, exit, interrupted, e);

    c->stats.landings--; /* it is the end of one that is counted */
    return result;
}

static const struct pmu_target_ops target_ops = {
    .run = target_run,
    .step = target_step,
    .can_step = target_can_step,
    .matches = target_matches,
    .search = target_search,
};

/* ---- the clock ---- */

static void pmu_close(struct clock *c)
{
    struct pmu_clock *p = of(c);

    p->perf.counter.ops->close(&p->perf.counter);
    free(p);
}

static int pmu_open(struct clock *c, struct err *e)
{
    struct err why = {0};
    struct pmu_clock *p = calloc(1, sizeof *p);

    if (!p)
        return err_set(e, STATUS_ERROR, "out of memory");
    const struct pmu_event *event = pmu_event_here(&why);
    if (!event || pmu_perf_open(&p->perf, event->raw, c->vcpu, &why) < 0) {
        free(p);
        goto refused;
    }
    c->own = p;
    p->clock = c;
    p->target =
        (struct pmu_target){.ops = &target_ops, .counter = &p->perf.counter, .skid = event->skid};
    if (pmu_selftest_isolated(&why) == 0 && count_now(c, &why) == 0) {
        p->base = p->count;
        c->branches = 0;
        return 0;
    }
    pmu_close(c);
refused:
    return err_set(e, STATUS_ERROR,
                   "no pmu clock on this host: %.700s; use --clock landmark, or --clock auto",
                   why.text);
}

static int pmu_run(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return target_run(&of(c)->target, exit, e) < 0 ? -1 : count_now(c, e);
}

static int pmu_step(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return target_step(&of(c)->target, exit, e) < 0 ? -1 : count_now(c, e);
}

/* What ran since the counter was read last is not what is to be counted: another vCPU, or a stretch
 * of this one that was run without its clock. A counter that cannot be read fails the next run. */
static void pmu_restore(struct clock *c, uint64_t branches)
{
    struct err ignored;

    (void)count_now(c, &ignored);
    of(c)->base = of(c)->count - branches;
    c->branches = branches;
}

static void pmu_sync(struct clock *c)
{
    pmu_restore(c, 0);
}

/* Any place will do; it is described so that the other clocks can land there too. */
static enum clock_choice pmu_choose(struct clock *c, const struct clock_host *host,
                                    struct landmark *landmark, struct vcpu_exit *exit,
                                    struct err *e)
{
    struct clock_host anywhere = *host;

    anywhere.effort = CLOCK_ANY_PLACE;
    enum clock_choice choice = clock_choose_near(c, &anywhere, landmark, exit, e);
    /* On its way it may have let the guest run without counting. */
    return choice == CLOCK_FAILED || count_now(c, e) == 0 ? choice : CLOCK_FAILED;
}

static enum clock_landing pmu_clock_land(struct clock *c, const struct landmark *landmark,
                                         struct vcpu_exit *exit, const atomic_bool *interrupted,
                                         struct err *e)
{
    struct pmu_clock *p = of(c);

    if (!landmark->counted) {
        err_set(e, STATUS_ERROR,
                "a forced point of the recording has no branch count; use --clock landmark");
        return LAND_FAILED;
    }
    if (vcpu_complete(c->vcpu, e) < 0) /* steps begin behind the instruction that exited */
        return LAND_FAILED;
    p->target.exits = 0;
    enum clock_landing result =
        pmu_land(&p->target, p->base + landmark->branches, landmark, exit, interrupted, e);
    c->stats.landings++;
    c->stats.exits += p->target.exits;
    return result == LAND_FAILED || count_now(c, e) == 0 ? result : LAND_FAILED;
}

const struct clock_ops clock_pmu = {
    .name = "pmu",
    .description = "a hardware counter of conditional branches; not yet run on hardware",
    .counts = true,
    .needs_count = true,
    .only_asked_for = true, /* until it has run on hardware */
    .open = pmu_open,
    .close = pmu_close,
    .run = pmu_run,
    .step = pmu_step,
    .sync = pmu_sync,
    .restore = pmu_restore,
    .choose = pmu_choose,
    .land = pmu_clock_land,
};
