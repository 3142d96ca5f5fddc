/* See vmm/points/look.h. */
#include "vmm/points/look.h"

#include <string.h>

#include "vmm/points/written.h"

/* How far a PAUSE may be, and how far apart two looks at the same waiting loop, in bytes of code.
 */
#define NEAR_PAUSE 128
#define NEAR_CODE  1024
/* Kernel code is taken to wait when it is still in the same run of a small loop so many looks, so
 * far apart, later. */
#define WAITING_LOOKS 2
#define WAITING_NS    400000ull
/* How long code is watched for what it changes: at first, and the last time. */
#define WATCH_NS      100000ull
#define WATCH_LAST_NS 400000ull
/* Where nothing is seen to change by then, for so much longer for each page written before: behind
 * an exit, the CPU fetches all translations anew. In the emulated host a loop that writes 600 pages
 * takes a hundred times as long then as it does later. */
#define WATCH_PAGE_NS 5000ull
/* A kick may come before the vCPU has run at all: in the emulated host one in five does. */
#define EARLY_KICKS_MAX 5

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

bool look_near_pause(struct vcpu *vcpu)
{
    uint8_t code[2 * NEAR_PAUSE];
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    const uint64_t va = linear_rip(vcpu->regs->rip, &sregs.cs);
    size_t n = vcpu_read(vcpu, va - NEAR_PAUSE, code, sizeof code);

    return memmem(code, n, "\xf3\x90", 2) != NULL;
}

/* Let the vCPU run on for that long. CLOCK_CHOSEN: it was kicked then. */
static enum clock_choice run_for(struct clock *c, const struct clock_host *host, uint64_t ns,
                                 struct vcpu_exit *exit, struct err *e)
{
    host->kick_after(host->opaque, ns);
    if (c->ops->run(c, exit, e) < 0)
        return CLOCK_FAILED;
    return exit->kind == EXIT_KICK ? CLOCK_CHOSEN : CLOCK_EXITED;
}

/* The same; a kick that came before it had run at all does not count. */
static enum clock_choice run_a_moment(struct clock *c, const struct clock_host *host, uint64_t ns,
                                      struct vcpu_exit *exit, struct err *e)
{
    const struct kvm_regs before = *c->vcpu->regs;
    enum clock_choice choice = CLOCK_CHOSEN;

    for (unsigned i = 0; i < EARLY_KICKS_MAX && choice == CLOCK_CHOSEN; i++) {
        choice = run_for(c, host, ns, exit, e);
        if (memcmp(c->vcpu->regs, &before, sizeof before) != 0)
            break;
    }
    return choice;
}

enum clock_choice look_whether_it_waits(struct clock *c, const struct clock_host *host,
                                        struct vcpu_exit *exit, struct err *e)
{
    const struct kvm_regs first = *c->vcpu->regs, *now = c->vcpu->regs;
    struct small_loop loop;
    const bool small = fingerprint_loop(c->vcpu, first.rip, &loop);

    if (!small && !look_near_pause(c->vcpu))
        return CLOCK_LATER;
    for (unsigned look = 0; look < WAITING_LOOKS; look++) {
        const enum clock_choice choice = run_for(c, host, WAITING_NS, exit, e);
        if (choice != CLOCK_CHOSEN)
            return choice;
        if (small ? !still_in(&loop, &first, now)
                  : now->rip - first.rip + NEAR_CODE > 2 * NEAR_CODE)
            return CLOCK_LATER;
    }
    return CLOCK_CHOSEN;
}

/* Whether a CPU that changes nothing for a moment is worth a longer one: one that spins does not,
 * and the others wait for it. */
static bool may_watch_longer(struct vcpu *vcpu, const struct clock_host *host)
{
    return host->reason != CLOCK_IF_WAITING && !host->concurrent && !look_near_pause(vcpu);
}

enum clock_choice look_what_changes(struct clock *c, const struct clock_host *host,
                                    struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const unsigned cpl = vcpu_cpl(vcpu), pages = written_look(vcpu);
    enum clock_choice choice = CLOCK_CHOSEN;
    bool any_changed = false;

    for (uint64_t ns = WATCH_NS; ns <= WATCH_LAST_NS && !any_changed; ns *= 2) {
        choice = run_a_moment(c, host, ns, exit, e);
        if (choice != CLOCK_CHOSEN)
            return choice;
        if (vcpu_cpl(vcpu) != cpl && !host->concurrent)
            return CLOCK_LATER;
        any_changed = !pages || written_any_changed(vcpu->vm);
    }
    if (!any_changed && may_watch_longer(vcpu, host)) {
        choice = run_for(c, host, pages * WATCH_PAGE_NS, exit, e);
        if (choice == CLOCK_CHOSEN && vcpu_cpl(vcpu) != cpl)
            return CLOCK_LATER;
    }
    return choice;
}
