/*
 * Forced points without a counter: a point is described by its registers and the memory around it
 * (vmm/fingerprint.h), and found again by a breakpoint on its instruction from the previous sync
 * point on, comparing at every pass.
 *
 * The breakpoint is a HLT byte. At CPL0 it exits by itself; at CPL3 it raises #GP, which exits in
 * the #GP hook with the user state in the exception frame.
 */
#include "vmm/clock.h"

#include <string.h>

#include "base/now.h"
#include "mmu/walk.h"
#include "vmm/fingerprint.h"
#include "vmm/insn.h"
#include "vmm/return_site.h"
#include "vmm/site.h"
#include "vmm/trace.h"

/* How far choose() steps ahead for a good instruction before it asks for another try. */
#define CHOOSE_STEPS 24
/* The same out of code that writes itself, which is called from code that does not. */
#define CHOOSE_STEPS_WRITABLE 256
/* How many instructions with memory operands it passes over in the hope of one without. */
#define CHOOSE_MEMORY_STEPS 6
/* How far a PAUSE may be, and how far apart two looks at the same waiting loop, in bytes of code.
 */
#define NEAR_PAUSE 128
#define NEAR_CODE  1024
/* Kernel code is taken to wait when it is still in the same run of a small loop so many looks, so
 * far apart, later. */
#define WAITING_LOOKS 2
#define WAITING_NS    400000ull
/* String instructions: they are interrupted between iterations, but found again only at their ends.
 */
#define REPEATED (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)
/* Passes of the breakpoint before the comparison moves into the guest: two of code that could be
 * written to, to see whether it is. */
#define SLOW_PASSES_WRITABLE 2
/* A trace costs more than a pass: a loop that makes a system call in each gets so many short traces
 * in a row, and no more for so many passes. */
#define TRACES_IN_VAIN 4
#define TRACE_SHORT_NS 1000000ull
#define TRACE_PAUSE    256

/* Until there is user space Linux reads and patches its own code (in the kernel's half of the
 * address space), where it would meet HLTs of ours. */
static bool patches_itself(const struct gp_hook *hook, uint64_t rip)
{
    return !hook->rip && rip >> 63;
}

/* ---- recording ---- */

/* User code that user mode can write may have been written since the last sync point, where replay
 * sets its breakpoint. */
static bool is_writable_code(const struct translation *t, const struct kvm_sregs *sregs)
{
    return sregs->ss.dpl == 3 && t->writable;
}

/* Describe the point where the vCPU stands; false when it is no good. */
static bool take(struct vcpu *vcpu, const struct clock_host *host, enum site_quality least,
                 struct landmark *l)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs sregs;
    struct translation t;
    struct insn insn;

    vcpu_get_sregs(vcpu, &sregs);
    if (!vcpu_interruptible(vcpu) || !insn_decode(m, sregs.cr3, vcpu->regs->rip, &insn) ||
        !walk(m, sregs.cr3, insn.va, &t) || !guest_memory_at(m, t.gpa, 1) ||
        site_quality(m, &insn, vcpu->regs, &sregs) < least ||
        (is_writable_code(&t, &sregs) && !host->hurry) ||
        !code_is_stable(&host->stable, insn.va, t.gpa, insn.bytes, insn.info.length))
        return false;
    memset(l, 0, sizeof *l);
    l->gpa = t.gpa;
    l->code_len = insn.info.length;
    memcpy(l->code, insn.bytes, insn.info.length);
    fingerprint_take(vcpu, vcpu->regs, &sregs, l);
    return true;
}

enum clock_choice clock_choose_near(struct clock *c, const struct clock_host *host,
                                    struct landmark *landmark, struct vcpu_exit *exit,
                                    struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const struct guest_memory *m = &vcpu->vm->memory;
    unsigned limit = CHOOSE_STEPS;

    for (unsigned steps = 0; steps < limit; steps++) {
        struct kvm_sregs sregs;
        struct translation t;
        struct insn insn;
        vcpu_get_sregs(vcpu, &sregs);
        if (!vcpu_interruptible(vcpu) || (sregs.ss.dpl == 3 && !host->hook->rip))
            return CLOCK_LATER;
        if (take(vcpu, host, steps < CHOOSE_MEMORY_STEPS ? SITE_GOOD : SITE_MEMORY, landmark))
            return CLOCK_CHOSEN;
        if (!insn_decode(m, sregs.cr3, vcpu->regs->rip, &insn) || !walk(m, sregs.cr3, insn.va, &t))
            return CLOCK_LATER;
        if (is_writable_code(&t, &sregs))
            limit = CHOOSE_STEPS_WRITABLE;
        if ((insn.info.attributes & REPEATED) && c->ops->steps_only) {
            do {
                if (c->ops->step(c, exit, e) < 0)
                    return CLOCK_FAILED;
            } while (exit->kind == EXIT_STEP && vcpu->regs->rip == insn.va);
            if (exit->kind != EXIT_STEP)
                return exit->kind == EXIT_KICK ? CLOCK_LATER : CLOCK_EXITED;
            continue;
        }
        if (insn.info.attributes & REPEATED) {
            enum clock_choice behind =
                return_site_run_to(vcpu, host, insn.va + insn.info.length, exit, e);
            if (behind != CLOCK_CHOSEN)
                return behind;
            continue;
        }
        if (site_quality(m, &insn, vcpu->regs, &sregs) == SITE_UNSUITABLE)
            return CLOCK_LATER;
        if (c->ops->step(c, exit, e) < 0)
            return CLOCK_FAILED;
        if (exit->kind == EXIT_KICK)
            return CLOCK_LATER;
        if (exit->kind != EXIT_STEP)
            return CLOCK_EXITED;
    }
    return CLOCK_LATER;
}

/* Whether the vCPU is still in the same run of the loop: nothing changed but what the loop changes.
 */
static bool still_in(const struct small_loop *loop, const struct kvm_regs *then,
                     const struct kvm_regs *now)
{
    const uint64_t *a = (const uint64_t *)then, *b = (const uint64_t *)now;

    for (unsigned reg = 0; reg < 16; reg++)
        if (!(loop->written >> reg & 1) && a[reg] != b[reg])
            return false;
    return now->rip >= loop->low && now->rip <= loop->high;
}

/* Whether there is a PAUSE close by: the mark of a loop that waits for something (cpu_relax()). */
static bool near_pause(struct vcpu *vcpu, uint64_t rip)
{
    uint8_t code[2 * NEAR_PAUSE];
    size_t n = insn_read(vcpu, rip - NEAR_PAUSE, code, sizeof code);

    return memmem(code, n, "\xf3\x90", 2) != NULL;
}

/*
 * Kernel code that only waits stays in one small loop, or near a PAUSE: passes of that are told
 * apart inside the guest (vmm/trace.h). Kernel code that works passes any place of its loops too
 * often and in too many ways; it soon comes to a sync point by itself. When false, *otherwise says
 * why.
 */
static bool is_waiting(struct vcpu *vcpu, const struct clock_host *host, struct vcpu_exit *exit,
                       enum clock_choice *otherwise, struct err *e)
{
    const struct kvm_regs first = *vcpu->regs;
    struct small_loop loop;
    bool small = fingerprint_loop(vcpu, first.rip, &loop);

    *otherwise = CLOCK_LATER;
    if (!small && !near_pause(vcpu, first.rip))
        return false;
    for (unsigned look = 0; look < WAITING_LOOKS; look++) {
        host->kick_after(host->opaque, WAITING_NS);
        if (vcpu_run(vcpu, exit, e) < 0) {
            *otherwise = CLOCK_FAILED;
            return false;
        }
        if (exit->kind != EXIT_KICK) {
            *otherwise = CLOCK_EXITED;
            return false;
        }
        if (small ? !still_in(&loop, &first, vcpu->regs)
                  : vcpu->regs->rip - first.rip + NEAR_CODE > 2 * NEAR_CODE)
            return false;
    }
    return true;
}

static enum clock_choice choose(struct clock *c, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    enum clock_choice choice;

    if (vcpu_cpl(vcpu) == 3 || host->hurry || is_waiting(vcpu, host, exit, &choice, e))
        return clock_choose_near(c, host, landmark, exit, e);
    if (choice != CLOCK_LATER || patches_itself(host->hook, vcpu->regs->rip))
        return choice;
    /* Where a function that is called rarely returns to, if one returns soon. */
    for (unsigned skip = 2; vcpu_cpl(vcpu) == 0; skip = 0) {
        choice = return_site_run(vcpu, host, skip, exit, e);
        if (choice == CLOCK_FAILED || choice == CLOCK_EXITED)
            return choice;
        if (choice == CLOCK_CHOSEN && take(vcpu, host, SITE_GOOD, landmark))
            return CLOCK_CHOSEN;
        if (skip == 0)
            break;
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
    const volatile bool *interrupted;
    uint64_t last[REG_COUNT]; /* registers at the previous pass */
    unsigned passes;
    unsigned traces_at;       /* the pass from which on traces are tried again */
    unsigned in_vain;         /* traces in a row that the code soon left */
    uint64_t traced_ns;       /* when the last one began; 0: none yet */
    bool rewritten;           /* the code changes from pass to pass */
    uint8_t page[PAGE_BYTES]; /* of the site, at the previous pass */
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
        rc = vcpu_run_step(g->vcpu, exit, e);
        g->stats->exits++;
    } while (rc == 0 && exit->kind == EXIT_KICK);
    if (rc < 0)
        return LAND_FAILED;
    if (exit->kind != EXIT_STEP)
        return fail(e, "the instruction there cannot be stepped over");
    arm(g);
    return LANDED;
}

static bool is_false(const struct landing *g, const struct trace_condition *c,
                     const struct kvm_regs *regs)
{
    uint64_t value = c->value;

    if (!c->memory)
        return ((const uint64_t *)regs)[c->reg] != c->value;
    return walk_read(&g->vcpu->vm->memory, g->l->cr3, c->va, &value, 8) == 8 && value != c->value;
}

/* A fault of the comparison would leave its frame on the stack of kernel code: there, only memory
 * of the kernel's own is looked at. User memory may be taken away, or may not be touched (SMAP). */
static bool may_look_at(const struct landing *g, uint64_t va)
{
    struct translation t;

    return g->l->cpl == 3 || (walk(&g->vcpu->vm->memory, g->l->cr3, va, &t) && !t.user);
}

/*
 * What the passes are told apart by: registers, flags and memory words. The first is one that is
 * false now, if possible one that did not change since the last pass: an outer loop's counter says
 * no for the whole of the inner loop. 0 when nothing is false now: the stack or the FPU must be
 * compared.
 */
static unsigned find_conditions(const struct landing *g, const struct kvm_regs *regs,
                                struct trace_condition out[TRACE_CONDITIONS])
{
    const uint64_t *now = (const uint64_t *)regs;
    unsigned count = 0, first = 0, best = 0;

    _Static_assert(REG_COUNT + LANDMARK_PROBES <= TRACE_CONDITIONS, "all fit");
    for (unsigned reg = 0; reg < REG_COUNT; reg++)
        if (reg != REGISTER_RIP)
            out[count++] = (struct trace_condition){.reg = reg, .value = g->l->regs[reg]};
    for (unsigned i = 0; i < g->l->probes; i++)
        if (may_look_at(g, g->l->probe[i].va))
            out[count++] = (struct trace_condition){
                .memory = true, .va = g->l->probe[i].va, .value = g->l->probe[i].value};
    for (unsigned i = 0; i < count; i++) {
        unsigned score = !is_false(g, &out[i], regs)                  ? 0
                         : out[i].memory || out[i].reg > REGISTER_RIP ? 1
                         : now[out[i].reg] != g->last[out[i].reg]     ? 2
                                                                      : 3;
        if (score > best) {
            best = score;
            first = i;
        }
    }
    struct trace_condition quick = out[first];
    out[first] = out[0];
    out[0] = quick;
    return best ? count : 0;
}

/*
 * Whether the kernel code's page changed since the previous pass. A copy of code that rewrites
 * itself would be stale at once (that of user code checks itself). What changes more rarely is not
 * noticed: kernels serialize after they patched themselves, which ends the trace.
 */
static bool is_rewritten(struct landing *g)
{
    const uint8_t *now = g->site - (g->l->gpa & (PAGE_BYTES - 1));

    disarm(g);
    g->rewritten |= g->passes > 1 && memcmp(now, g->page, sizeof g->page);
    memcpy(g->page, now, sizeof g->page);
    arm(g);
    return g->rewritten;
}

/* Move the comparison into the guest, if that is possible here and worth it. */
static bool start_trace(struct landing *g, const struct kvm_regs *regs,
                        const struct kvm_sregs *sregs)
{
    struct trace_condition conditions[TRACE_CONDITIONS];
    struct translation t;

    if (g->passes < g->traces_at || (g->l->cpl == 0 && is_rewritten(g)))
        return false;
    if (g->passes < SLOW_PASSES_WRITABLE && g->l->cpl == 0 &&
        walk(&g->vcpu->vm->memory, sregs->cr3, regs->rip, &t) && t.writable)
        return false;
    const uint64_t now = host_now_ns();
    if (now - g->traced_ns > TRACE_SHORT_NS)
        g->in_vain = 0;
    g->traced_ns = now;
    if (++g->in_vain > TRACES_IN_VAIN) {
        g->in_vain = 0;
        g->traces_at = g->passes + TRACE_PAUSE;
        return false;
    }
    unsigned count = find_conditions(g, regs, conditions);
    if (!count)
        return false;
    disarm(g); /* the trace is a copy of the guest's code, not of our breakpoint */
    bool started = trace_start(g->vcpu, g->hook, regs, sregs, conditions, count);
    arm(g);
    return started;
}

/* The breakpoint was hit in another mapping of the page, or in another process. */
static bool is_elsewhere(struct landing *g, const struct kvm_regs *regs,
                         const struct kvm_sregs *sregs)
{
    struct translation t;

    return (regs->rip != g->l->regs[REGISTER_RIP] || sregs->cr3 != g->l->cr3) &&
           walk(&g->vcpu->vm->memory, sregs->cr3, regs->rip, &t) && t.gpa == g->l->gpa;
}

static enum clock_landing land_armed(struct landing *g, struct vcpu_exit *exit, struct err *e)
{
    const struct landmark *l = g->l;
    struct kvm_regs regs;
    struct kvm_sregs sregs;

    for (;;) {
        if (vcpu_run(g->vcpu, exit, e) < 0)
            return LAND_FAILED;
        g->stats->exits++;
        if (*g->interrupted)
            return LAND_STOPPED;
        if (exit->kind == EXIT_KICK)
            continue;
        enum trace_verdict verdict = trace_exit(g->vcpu, exit, &regs, &sregs);
        if (verdict == TRACE_RUN_ON)
            continue;
        if (verdict == TRACE_OTHER &&
            !gphook_breakpoint(g->vcpu, g->hook, exit, l->cpl, &l->cs, &l->ss, &regs, &sregs))
            return LAND_MISSED;
        if (verdict == TRACE_OTHER && l->cpl == 0)
            trace_stop(g->vcpu); /* what ran outside the trace may have changed the code */
        if (!is_elsewhere(g, &regs, &sregs)) {
            if (regs.rip != l->regs[REGISTER_RIP])
                return LAND_MISSED;
            if (fingerprint_matches(g->vcpu, &regs, &sregs, l)) {
                trace_stop(g->vcpu);
                stand_at_site(g, &regs, &sregs);
                return LANDED;
            }
            g->passes++;
            bool tracing = start_trace(g, &regs, &sregs);
            memcpy(g->last, &regs, sizeof g->last);
            if (tracing)
                continue;
        }
        trace_stop(g->vcpu);
        enum clock_landing stepped = step_over(g, &regs, &sregs, exit, e);
        if (stepped != LANDED)
            return stepped;
    }
}

static enum clock_landing land(struct clock *c, const struct landmark *landmark,
                               struct vcpu_exit *exit, const volatile bool *interrupted,
                               struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    struct landing g = {
        .vcpu = vcpu,
        .hook = c->hook,
        .l = landmark,
        .stats = &c->stats,
        .interrupted = interrupted,
    };

    memcpy(g.last, vcpu->regs, sizeof g.last);
    g.site = guest_memory_at(&vcpu->vm->memory, landmark->gpa, 1);
    if (!g.site)
        return fail(e, "it lies outside memory");
    if (*g.site != landmark->code[0])
        return fail(e, "the code there is not the recording's");
    c->stats.landings++;
    arm(&g);
    enum clock_landing result = land_armed(&g, exit, e);
    trace_stop(vcpu);
    disarm(&g);
    return result;
}

/* ---- the table ---- */

static int run(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run(c->vcpu, exit, e);
}

static int step(struct clock *c, struct vcpu_exit *exit, struct err *e)
{
    return vcpu_run_step(c->vcpu, exit, e);
}

const struct clock_ops clock_landmark = {
    .name = "landmark",
    .description = "registers and memory, found again by a breakpoint; needs no counter",
    .run = run,
    .step = step,
    .choose = choose,
    .land = land,
};
