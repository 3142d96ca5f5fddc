/*
 * Forced points without a counter: a point is described by its registers and the memory around it
 * (vmm/fingerprint.h), and found again by a breakpoint on its instruction from the previous sync
 * point on, comparing at every pass.
 *
 * The breakpoint is a HLT byte. At CPL0 it exits by itself; at CPL3 it raises #GP, which exits in
 * the #GP hook with the user state in the exception frame.
 */
#include "vmm/clock.h"

#include <assert.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/fingerprint.h"
#include "vmm/insn.h"
#include "vmm/site.h"
#include "vmm/trace.h"

#define HLT 0xf4
/* How far choose() steps ahead for a good instruction before it asks for another try. */
#define CHOOSE_STEPS 24
/* How many instructions with memory operands it passes over in the hope of one without. */
#define CHOOSE_MEMORY_STEPS 6
/* Passes of the breakpoint before the comparison moves into the guest. */
#define SLOW_PASSES 2

/* ---- recording ---- */

static bool fill_site(struct vcpu *vcpu, const struct insn *insn, const struct kvm_sregs *sregs,
                      struct landmark *l)
{
    struct translation t;

    if (!walk(&vcpu->vm->memory, sregs->cr3, insn->va, &t) ||
        !guest_memory_at(&vcpu->vm->memory, t.gpa, 1))
        return false;
    memset(l, 0, sizeof *l);
    l->gpa = t.gpa;
    l->code_len = insn->info.length;
    memcpy(l->code, insn->bytes, insn->info.length);
    return true;
}

static enum clock_choice choose(struct vcpu *vcpu, const struct gp_hook *hook,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    const struct guest_memory *m = &vcpu->vm->memory;

    for (unsigned steps = 0; steps < CHOOSE_STEPS; steps++) {
        struct kvm_sregs sregs;
        struct insn insn;
        vcpu_get_sregs(vcpu, &sregs);
        if (!vcpu_interruptible(vcpu) || (sregs.ss.dpl == 3 && !hook->rip) ||
            !insn_decode(m, sregs.cr3, vcpu->regs->rip, &insn))
            return CLOCK_LATER;
        enum site_quality quality = site_quality(m, &insn, vcpu->regs, &sregs);
        if (quality == SITE_UNSUITABLE)
            return CLOCK_LATER;
        if ((quality == SITE_GOOD || steps >= CHOOSE_MEMORY_STEPS) &&
            fill_site(vcpu, &insn, &sregs, landmark)) {
            fingerprint_take(vcpu, vcpu->regs, &sregs, landmark);
            return CLOCK_CHOSEN;
        }
        vcpu_step(vcpu, true);
        int rc = vcpu_run(vcpu, exit, e);
        vcpu_step(vcpu, false);
        if (rc < 0)
            return CLOCK_FAILED;
        if (exit->kind == EXIT_KICK)
            return CLOCK_LATER;
        if (exit->kind != EXIT_STEP)
            return CLOCK_EXITED;
    }
    return CLOCK_LATER;
}

/* ---- replay ---- */

/* A landing in progress. */
struct landing {
    struct vcpu *vcpu;
    const struct gp_hook *hook;
    const struct landmark *l;
    uint8_t *site; /* host address of the first byte of the instruction */
    struct landing_stats *stats;
    struct trace_filter filter;
    struct kvm_regs last; /* registers at the previous pass */
    unsigned passes;
};

static void arm(struct landing *g)
{
    *g->site = HLT;
}

static void disarm(struct landing *g)
{
    if (*g->site == HLT)
        *g->site = g->l->code[0];
}

/* The vCPU stopped at our HLT. On true, *regs and *sregs are the state of the code at the site (for
 * user code: from the exception frame), with RIP on the site. */
static bool at_site(struct landing *g, const struct vcpu_exit *exit, struct kvm_regs *regs,
                    struct kvm_sregs *sregs)
{
    uint64_t rip = g->l->regs[16];
    struct exception_frame frame;

    if (exit->kind != EXIT_HLT)
        return false;
    *regs = *g->vcpu->regs;
    if (regs->rip == rip + 1 && g->l->cpl == 0) {
        regs->rip = rip;
        vcpu_get_sregs(g->vcpu, sregs);
        return true;
    }
    if (g->l->cpl == 3 && gphook_hit(g->vcpu, g->hook, exit, &frame) &&
        trace_filter_original(&g->filter, frame.rip) == rip && (frame.cs & 3) == 3) {
        regs->rip = rip;
        regs->rsp = frame.rsp;
        regs->rflags = frame.rflags & ~RFLAGS_RF;
        vcpu_get_sregs(g->vcpu, sregs);
        sregs->cs = g->l->cs;
        sregs->ss = g->l->ss;
        return true;
    }
    return false;
}

/* Bring the vCPU itself to the site, as if the breakpoint had never been there. */
static void stand_at_site(struct landing *g, const struct kvm_regs *regs,
                          const struct kvm_sregs *sregs)
{
    disarm(g);
    if (g->l->cpl == 3)
        vcpu_set_sregs(g->vcpu, sregs);
    vcpu_set_regs(g->vcpu, regs);
}

static enum clock_landing fail(struct err *e, const char *what)
{
    err_set(e, STATUS_ERROR, "landing on a forced point failed: %s", what);
    return LAND_FAILED;
}

/* Execute the instruction at the site by a single step and set the breakpoint again. */
static enum clock_landing step_over(struct landing *g, const struct kvm_regs *regs,
                                    const struct kvm_sregs *sregs, struct vcpu_exit *exit,
                                    struct err *e)
{
    int rc;

    stand_at_site(g, regs, sregs);
    do {
        vcpu_step(g->vcpu, true);
        rc = vcpu_run(g->vcpu, exit, e);
        vcpu_step(g->vcpu, false);
        g->stats->exits++;
    } while (rc == 0 && exit->kind == EXIT_KICK);
    if (rc < 0)
        return LAND_FAILED;
    if (exit->kind != EXIT_STEP)
        return fail(e, "the instruction there cannot be stepped over");
    arm(g);
    return LANDED;
}

static enum clock_landing land_armed(struct landing *g, struct vcpu_exit *exit, struct err *e)
{
    struct kvm_regs regs;
    struct kvm_sregs sregs;

    for (;;) {
        if (vcpu_run(g->vcpu, exit, e) < 0)
            return LAND_FAILED;
        g->stats->exits++;
        if (exit->kind == EXIT_KICK)
            continue;
        if (trace_filter_handle(&g->filter, g->vcpu, exit))
            continue;
        if (!at_site(g, exit, &regs, &sregs))
            return LAND_MISSED;
        trace_filter_stop(&g->filter);
        if (fingerprint_matches(g->vcpu, &regs, &sregs, g->l)) {
            stand_at_site(g, &regs, &sregs);
            return LANDED;
        }
        if (++g->passes >= SLOW_PASSES &&
            trace_filter_start(&g->filter, g->vcpu, g->hook, g->l, &regs, &sregs, &g->last)) {
            g->last = regs;
            continue;
        }
        g->last = regs;
        enum clock_landing stepped = step_over(g, &regs, &sregs, exit, e);
        if (stepped != LANDED)
            return stepped;
    }
}

static enum clock_landing land(struct vcpu *vcpu, const struct gp_hook *hook,
                               const struct landmark *landmark, struct vcpu_exit *exit,
                               struct landing_stats *stats, struct err *e)
{
    struct landing g = {.vcpu = vcpu, .hook = hook, .l = landmark, .stats = stats};

    g.site = guest_memory_at(&vcpu->vm->memory, landmark->gpa, landmark->code_len);
    if (!g.site)
        g.site = guest_memory_at(&vcpu->vm->memory, landmark->gpa, 1);
    if (!g.site)
        return fail(e, "it lies outside memory");
    if (*g.site != landmark->code[0])
        return fail(e, "the code there is not the recording's");
    stats->landings++;
    arm(&g);
    enum clock_landing result = land_armed(&g, exit, e);
    trace_filter_stop(&g.filter);
    disarm(&g);
    return result;
}

const struct clock_ops clock_landmark = {
    .name = "landmark",
    .choose = choose,
    .land = land,
};
