/*
 * Forced points without a counter: a point is described by its registers and the memory around it
 * (vmm/points/fingerprint.h), and found again by a breakpoint on its instruction from the previous
 * sync point on (vmm/points/landmark_land.c). This file chooses them.
 */
#include "vmm/points/clock.h"

#include <string.h>

#include "base/now.h"
#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/breakpoint.h"
#include "vmm/points/entry_count.h"
#include "vmm/points/fingerprint.h"
#include "vmm/points/repeat.h"
#include "vmm/points/run_to.h"
#include "vmm/points/same_passes.h"
#include "vmm/points/site.h"
#include "vmm/points/written.h"

/* How far choose() steps ahead for a good instruction before it asks for another try. */
#define CHOOSE_STEPS 24
/* The same out of code that writes itself, which is called from code that does not. */
#define CHOOSE_STEPS_WRITABLE 256
/* How many instructions with memory operands it passes over in the hope of one without. */
#define CHOOSE_MEMORY_STEPS 6
/* How many that a trace does not copy. */
#define CHOOSE_COPIED_STEPS 20
/* How many other instructions for a jump, where passes are told apart at jumps only. A loop without
 * one is so long that it has few passes. */
#define CHOOSE_JUMP_STEPS 96
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
/* How long the end of an instruction that repeats itself is waited for. */
#define RUN_TO_NS 200000000ull
/* String instructions: they are interrupted between iterations, but found again only at their ends.
 */
#define REPEATED (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)

/* User code that user mode can write may have been written since the last sync point, where replay
 * sets its breakpoint: it would have to follow each write to that page (run_watching()). */
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
    if (!clock_can_stop(vcpu, host) ||
        !insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) ||
        !walk(m, sregs.cr3, insn.va, &t) || !guest_memory_at(m, t.gpa, 1) ||
        site_quality(m, &insn, vcpu->regs, &sregs) < least ||
        (is_writable_code(&t, &sregs) && host->effort < CLOCK_ANY_PLACE &&
         written_maybe(vcpu->vm, t.gpa)) ||
        !code_is_stable(&host->stable, insn.va, t.gpa, insn.bytes, insn.info.length))
        return false;
    return fingerprint_describe(vcpu, l);
}

/* Code of 32 and 16 bits is not copied (vmm/points/trace/trace.h): passes of its jumps alone can be
 * told apart inside the guest. */
static bool has_jumps_only(const struct kvm_sregs *sregs)
{
    return sregs->ss.dpl == 3 && !sregs->cs.l;
}

/* The quality that a place must have so many steps on; SITE_JUMP where jumps are waited for. */
static enum site_quality quality_wanted(unsigned steps, unsigned jump_steps)
{
    return steps < jump_steps                         ? SITE_JUMP
           : steps - jump_steps < CHOOSE_MEMORY_STEPS ? SITE_GOOD
           : steps - jump_steps < CHOOSE_COPIED_STEPS ? SITE_MEMORY
                                                      : SITE_UNCOPIED;
}

/*
 * Go by steps to the end of the string instruction where the vCPU stands. In user code a breakpoint
 * behind it would leave the frame of an exception on the kernel's stack. Each real step makes sure
 * of pages, to whose ends the rest is done in software, but by a clock that only steps.
 * CLOCK_LATER: the next iteration may fault, or it takes too long.
 */
static enum clock_choice finish_repeat(struct clock *c, const struct insn *insn,
                                       struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const uint64_t rip = vcpu->regs->rip, began = host_now_ns();
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    while (vcpu->regs->rip == rip) {
        if (!c->ops->steps_only && (host_now_ns() - began > RUN_TO_NS ||
                                    !site_can_step(&vcpu->vm->memory, insn, vcpu->regs, &sregs)))
            return CLOCK_LATER;
        if (c->ops->step(c, exit, e) < 0)
            return CLOCK_FAILED;
        if (exit->kind == EXIT_KICK)
            return CLOCK_LATER;
        if (exit->kind != EXIT_STEP)
            return CLOCK_EXITED;
        if (!c->ops->steps_only && vcpu->regs->rip == rip && !vcpu->vm->memory.readable)
            repeat_run(vcpu, NULL, UINT64_MAX);
    }
    return CLOCK_CHOSEN;
}

/* The vCPU's place, or one some steps on. */
static enum clock_choice choose_near(struct clock *c, const struct clock_host *host,
                                     struct landmark *landmark, struct vcpu_exit *exit,
                                     struct err *e)
{
    struct vcpu *vcpu = c->vcpu;
    const struct guest_memory *m = &vcpu->vm->memory;
    unsigned limit = CHOOSE_STEPS, jump_steps = 0;

    for (unsigned steps = 0; steps < limit + jump_steps; steps++) {
        struct kvm_sregs sregs;
        struct translation t;
        struct insn insn;
        vcpu_get_sregs(vcpu, &sregs);
        if (!jump_steps && has_jumps_only(&sregs))
            jump_steps = CHOOSE_JUMP_STEPS;
        if (!clock_can_stop(vcpu, host) || (sregs.ss.dpl == 3 && !host->hook->rip))
            return CLOCK_LATER;
        if (take(vcpu, host, quality_wanted(steps, jump_steps), landmark))
            return CLOCK_CHOSEN;
        if (!insn_decode(m, &sregs, linear_rip(vcpu->regs->rip, &sregs.cs), &insn) ||
            !walk(m, sregs.cr3, insn.va, &t))
            return CLOCK_LATER;
        if (is_writable_code(&t, &sregs))
            limit = CHOOSE_STEPS_WRITABLE;
        if (insn.info.attributes & REPEATED) {
            const bool by_steps = sregs.ss.dpl == 3 || c->ops->steps_only;
            if (!by_steps && host->concurrent)
                return CLOCK_LATER;
            const enum clock_choice behind =
                by_steps
                    ? finish_repeat(c, &insn, exit, e)
                    : kernel_run_to(vcpu, host, insn.va + insn.info.length, RUN_TO_NS, exit, e);
            if (behind != CLOCK_CHOSEN)
                return behind;
            continue;
        }
        /* A PAUSE is no place, but may be all that kicks ever meet in a loop of a few instructions.
         */
        if (!site_can_step(m, &insn, vcpu->regs, &sregs))
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
static bool near_pause(struct vcpu *vcpu)
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

/* Whether the search for a place is over, without one. */
static bool has_ended(enum clock_choice choice)
{
    return choice == CLOCK_EXITED || choice == CLOCK_FAILED;
}

/*
 * Kernel code that only waits stays in one small loop, or near a PAUSE: passes of that are told
 * apart inside the guest (vmm/points/trace/trace.h). Kernel code that works passes any place of its
 * loops too often and in too many ways; it soon comes to a sync point by itself. CLOCK_CHOSEN: it
 * waits; CLOCK_LATER: it works.
 */
static enum clock_choice look_whether_it_waits(struct clock *c, const struct clock_host *host,
                                               struct vcpu_exit *exit, struct err *e)
{
    const struct kvm_regs first = *c->vcpu->regs, *now = c->vcpu->regs;
    struct small_loop loop;
    const bool small = fingerprint_loop(c->vcpu, first.rip, &loop);

    if (!small && !near_pause(c->vcpu))
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
    return host->reason != CLOCK_IF_WAITING && !host->concurrent && !near_pause(vcpu);
}

/* Let code run on a moment, and see what it does to the memory that it points to. CLOCK_CHOSEN: it
 * stands where a point may be chosen now: where CPUs take turns, at the same CPL. */
static enum clock_choice watch(struct clock *c, const struct clock_host *host,
                               struct pointed_words *pointed, struct vcpu_exit *exit, struct err *e)
{
    uint64_t changed[LANDMARK_PROBES];
    struct vcpu *vcpu = c->vcpu;
    const unsigned cpl = vcpu_cpl(vcpu);
    enum clock_choice choice = CLOCK_CHOSEN;
    bool any_changed = false;

    fingerprint_look(vcpu, pointed);
    const unsigned pages = written_look(vcpu->vm);
    for (uint64_t ns = WATCH_NS; ns <= WATCH_LAST_NS && !any_changed; ns *= 2) {
        choice = run_a_moment(c, host, ns, exit, e);
        if (choice != CLOCK_CHOSEN)
            return choice;
        if (vcpu_cpl(vcpu) != cpl && !host->concurrent)
            return CLOCK_LATER;
        any_changed = fingerprint_changed(vcpu, pointed, changed);
    }
    if (!any_changed && pages && may_watch_longer(vcpu, host) && !written_any_changed(vcpu->vm)) {
        choice = run_for(c, host, pages * WATCH_PAGE_NS, exit, e);
        if (choice == CLOCK_CHOSEN && vcpu_cpl(vcpu) != cpl)
            return CLOCK_LATER;
    }
    return choice;
}

/* Without the words where landing on user code leaves the frame of an exception; how many are left.
 */
static unsigned drop_frame(struct vcpu *vcpu, const struct landmark *landmark, uint64_t *va,
                           unsigned count)
{
    const uint64_t frame = landmark->cpl == 3 ? gphook_user_frame_gpa(vcpu) : 0;
    unsigned left = 0;

    for (unsigned i = 0; i < count; i++) {
        struct translation t;
        if (!frame || !walk(&vcpu->vm->memory, landmark->cr3, va[i], &t) ||
            t.gpa + 7 - frame >= sizeof(struct exception_frame) + 7)
            va[left++] = va[i];
    }
    return left;
}

/* Have the landmark hold what has changed since then; returns how many words that is. */
static unsigned probe_changed(struct clock *c, const struct pointed_words *pointed,
                              struct landmark *landmark)
{
    struct vm *vm = c->vcpu->vm;
    uint64_t changed[WRITTEN_CHANGED + LANDMARK_PROBES];
    unsigned count = written_changed(vm, landmark->cr3, landmark->cpl, changed);

    count += fingerprint_changed(c->vcpu, pointed, changed + count);
    count = drop_frame(c->vcpu, landmark, changed, count);
    fingerprint_probe_also(&vm->memory, landmark, changed, count);
    return count;
}

/* The vCPU stops at a place that was chosen, if one was: nothing runs until its sync point. */
static enum clock_choice stop_at(struct clock *c, const struct clock_host *host,
                                 enum clock_choice choice, struct landmark *landmark)
{
    if (choice == CLOCK_CHOSEN) {
        if (host->entries)
            entries_note(c->vcpu, host->entries, landmark);
        fingerprint_probe_stack(&c->vcpu->vm->memory, landmark);
        if (!landmark->exact)
            fingerprint_compare_written(c->vcpu, landmark);
        written_forced(c->vcpu->vm, landmark);
    }
    return choice;
}

/* A place near the vCPU's, and what tells its passes apart. A CPU that is to be stopped only if it
 * waits is not stopped where no next pass is seen; `surely`: nor where one changes anything. */
static enum clock_choice choose_in_loop(struct clock *c, const struct clock_host *host, bool surely,
                                        const struct pointed_words *pointed,
                                        struct landmark *landmark, struct vcpu_exit *exit,
                                        struct err *e)
{
    struct loop_pass pass;
    enum clock_choice choice = choose_near(c, host, landmark, exit, e);

    if (choice != CLOCK_CHOSEN)
        return choice;
    const bool by_steps = host->concurrent || clock_patches_itself(c->vcpu, host->hook);
    /* Where CPUs run at the same time, one that works near a PAUSE loses all its pages if it is
     * taken to wait. */
    const bool if_waiting = host->reason == CLOCK_IF_WAITING;
    const bool waits_surely = surely || (host->concurrent && if_waiting);
    choice = same_passes_look(c, host, landmark, by_steps, &pass, exit, e);
    if (choice == CLOCK_LATER && !surely && !if_waiting) { /* no loop, or a slow one */
        choice = choose_near(c, host, landmark, exit, e);
        if (choice == CLOCK_CHOSEN)
            probe_changed(c, pointed, landmark);
        return choice;
    }
    if (choice != CLOCK_CHOSEN)
        return choice;
    if ((waits_surely && !pass.waits) || !take(c->vcpu, host, SITE_UNCOPIED, landmark))
        return CLOCK_LATER;
    probe_changed(c, pointed, landmark);
    fingerprint_probe_also(&c->vcpu->vm->memory, landmark, pass.changed_va, pass.changed);
    fingerprint_compare_also(&c->vcpu->vm->memory, landmark, pass.word, pass.words);
    return CLOCK_CHOSEN;
}

enum clock_choice clock_choose_near(struct clock *c, const struct clock_host *host,
                                    struct landmark *landmark, struct vcpu_exit *exit,
                                    struct err *e)
{
    const struct pointed_words nothing = {.count = 0};

    return stop_at(c, host, choose_in_loop(c, host, false, &nothing, landmark, exit, e), landmark);
}

/*
 * A place in code that works, where CPUs run at the same time. Others wait for this one, and to
 * step through a pass of its loop takes as long as thousands of them. What it changes while it runs
 * on for a moment tells passes apart as well, if it changes anything. CLOCK_LATER: it does not, or
 * so many pages are written that the landmark cannot hold them all and wants to know more of the
 * loop.
 */
static enum clock_choice choose_watching(struct clock *c, const struct clock_host *host,
                                         struct landmark *landmark, struct vcpu_exit *exit,
                                         struct err *e)
{
    struct pointed_words pointed;
    enum clock_choice choice = watch(c, host, &pointed, exit, e);

    if (choice == CLOCK_CHOSEN)
        choice = choose_near(c, host, landmark, exit, e);
    if (choice != CLOCK_CHOSEN)
        return choice;
    if (!probe_changed(c, &pointed, landmark))
        return CLOCK_LATER;
    fingerprint_compare_written(c->vcpu, landmark);
    return landmark->exact || !written_is_wanted(c->vcpu->vm) ? CLOCK_CHOSEN : CLOCK_LATER;
}

/* Where other CPUs run the same code. */
static enum clock_choice choose_concurrently(struct clock *c, const struct clock_host *host,
                                             struct landmark *landmark, struct vcpu_exit *exit,
                                             struct err *e)
{
    const struct pointed_words nothing = {.count = 0};

    if (host->watches && host->reason != CLOCK_IF_WAITING && !near_pause(c->vcpu)) {
        const enum clock_choice choice = choose_watching(c, host, landmark, exit, e);
        if (choice != CLOCK_LATER)
            return choice;
    }
    return choose_in_loop(c, host, false, &nothing, landmark, exit, e);
}

/* Kernel code that works, and is in no small loop that could wait: what it changed while it was
 * watched tells passes of the place apart inside the guest. Where the landmark cannot hold all
 * pages written, it wants to know more of the loop. */
static enum clock_choice choose_in_work(struct clock *c, const struct clock_host *host,
                                        const struct pointed_words *pointed,
                                        struct landmark *landmark, struct vcpu_exit *exit,
                                        struct err *e)
{
    const enum clock_choice choice = choose_near(c, host, landmark, exit, e);

    if (choice != CLOCK_CHOSEN)
        return choice;
    fingerprint_compare_written(c->vcpu, landmark);
    if (!landmark->exact)
        return choose_in_loop(c, host, false, pointed, landmark, exit, e);
    probe_changed(c, pointed, landmark);
    return choice;
}

/* Kernel code that is stopped only if it waits: by a CPU whose turn it is, or before there is user
 * space, when it may call schedule() until another CPU is up. */
static enum clock_choice choose_if_it_waits(struct clock *c, const struct clock_host *host,
                                            const struct pointed_words *pointed,
                                            struct landmark *landmark, struct vcpu_exit *exit,
                                            struct err *e)
{
    const enum clock_choice waits = look_whether_it_waits(c, host, exit, e);

    if (waits == CLOCK_CHOSEN)
        return choose_in_loop(c, host, false, pointed, landmark, exit, e);
    if (has_ended(waits) || host->reason == CLOCK_IF_WAITING || host->effort < CLOCK_WAITING_LOOP)
        return waits;
    return choose_in_loop(c, host, true, pointed, landmark, exit, e);
}

static enum clock_choice choose_place(struct clock *c, const struct clock_host *host,
                                      struct landmark *landmark, struct vcpu_exit *exit,
                                      struct err *e)
{
    const bool if_waiting = host->reason == CLOCK_IF_WAITING;
    struct vcpu *vcpu = c->vcpu;
    const bool patches = clock_patches_itself(vcpu, host->hook);
    struct pointed_words pointed = {.count = 0};
    struct small_loop loop;

    written_look_away(vcpu->vm);
    if (if_waiting && !near_pause(vcpu))
        return CLOCK_LATER;
    if (host->concurrent)
        return choose_concurrently(c, host, landmark, exit, e);
    /* Code that steps itself would be in its kernel behind the moment, nearly always. */
    if (host->watches && !patches && !(vcpu->regs->rflags & RFLAGS_TF)) {
        const enum clock_choice choice = watch(c, host, &pointed, exit, e);
        if (has_ended(choice))
            return choice;
        if (if_waiting && !near_pause(vcpu))
            return CLOCK_LATER;
    }
    if (vcpu_cpl(vcpu) == 0 && host->effort < CLOCK_ANY_PLACE && (if_waiting || patches))
        return choose_if_it_waits(c, host, &pointed, landmark, exit, e);
    if (vcpu_cpl(vcpu) == 0 && !patches && !near_pause(vcpu) &&
        !fingerprint_loop(vcpu, vcpu->regs->rip, &loop))
        return choose_in_work(c, host, &pointed, landmark, exit, e);
    return choose_in_loop(c, host, false, &pointed, landmark, exit, e);
}

static enum clock_choice choose(struct clock *c, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e)
{
    return stop_at(c, host, choose_place(c, host, landmark, exit, e), landmark);
}

/* ---- the table ---- */

static int open_clock(struct clock *c, struct err *e)
{
    (void)e;
    breakpoints_probe(c->vcpu->vm);
    return 0;
}

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
    .open = open_clock,
    .run = run,
    .step = step,
    .choose = choose,
    .land = landmark_land,
};
