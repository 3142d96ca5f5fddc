/*
 * Breakpoints (vmm/points/breakpoint.h) on small programs that a real KVM runs: where they stop,
 * that they stop nowhere else, that nothing of them stays behind, what conditions cost, and
 * landings on forced points. Writes TAP.
 *
 * usage: breakpoints [native]     `native`: CPL0 only, on this machine's own /dev/kvm whatever it
 * is
 */
#include <errno.h>
#include <fcntl.h>

#include "base/now.h"
#include "tests/tools/breakpoint_guest.h"
#include "tests/tools/breakpoint_programs.h"
#include "vmm/kvm/kick.h"
#include "vmm/points/stepper.h"

#define PASSES    1000000u
#define TOTAL     1500000u
#define FEW_EXITS 12

static bool native;

/* On from where a breakpoint stopped. */
static void step(void)
{
    struct stepper stepper;
    struct step done;
    struct err e = {0};

    stepper_init(&stepper, &guest.vcpu);
    if (stepper_step(&stepper, &done, &last, &e) < 0)
        fail(e.text);
    stepper_close(&stepper);
}

/* ---- conditions ---- */

/* The passes are the first instruction's operand. */
static double time_of(const uint8_t *code, size_t length, unsigned cpl)
{
    const uint32_t passes = PASSES;

    start(code, length, cpl, NULL);
    memcpy(guest_memory_at(&guest.vm.memory, CODE_AT + 1, 4), &passes, 4);
    const uint64_t began = host_now_ns();
    if (!is_done(run()))
        fail("a program does not end");
    return (double)(host_now_ns() - began);
}

/*
 * From the second stop on at the same place, as a user sees it who says "continue": what is made
 * once a VM, and code of ours that an emulated CPU runs for the first time, cost some ms.
 */
static void test_condition(const char *what, const uint8_t *code, size_t length, unsigned cpl,
                           uint64_t at, struct trace_condition early, struct trace_condition late)
{
    struct trace_condition condition = early;
    struct breakpoint b = {.va = at, .cpl = cpl, .condition = &condition, .conditions = 1};
    const double free_ns = time_of(code, length, cpl);

    start(code, length, cpl, NULL);
    add(&b);
    bool good = run() == BREAKPOINT_HIT && guest.vcpu.regs->rcx == TOTAL - 2;
    step();
    condition = late;
    set.exits = 0;
    const uint64_t began = host_now_ns();
    good &= run() == BREAKPOINT_HIT && guest.vcpu.regs->rip == at && b.hit;
    const double ns = (double)(host_now_ns() - began);
    const uint64_t exits = set.exits;
    good &=
        guest.vcpu.regs->rcx == TOTAL - PASSES + 1 && exits <= FEW_EXITS && is_clean(code, length);
    breakpoints_remove(&set, &b);
    good &= is_done(run());
    ok(good, what, cpl, NULL);
    printf("# %llu exits, %.1f ms, %.2f times the loop's own\n", (unsigned long long)exits,
           ns / 1e6, ns / free_ns);
}

/* Passes counted in the guest: to the millionth, and on the way to a condition. */
static void test_countdown(const uint8_t *code, size_t length, unsigned cpl, uint64_t at)
{
    const struct trace_condition condition = {.reg = 2, .value = TOTAL - 600000 + 1};
    struct breakpoint counted = {.va = at, .cpl = cpl, .countdown = PASSES};
    struct breakpoint both = {
        .va = at, .cpl = cpl, .condition = &condition, .conditions = 1, .countdown = PASSES};

    start(code, length, cpl, NULL);
    add(&counted);
    bool good = run() == BREAKPOINT_HIT && counted.hit && !counted.countdown &&
                guest.vcpu.regs->rip == at && guest.vcpu.regs->rcx == TOTAL - PASSES + 1 &&
                set.exits <= FEW_EXITS && is_clean(code, length);
    breakpoints_remove(&set, &counted);
    ok(good, "the millionth pass, counted,", cpl, NULL);

    start(code, length, cpl, NULL);
    add(&both);
    good = run() == BREAKPOINT_HIT && guest.vcpu.regs->rcx == condition.value &&
           both.countdown == PASSES - 600000;
    step();
    good &= run() == BREAKPOINT_HIT && !both.countdown && set.exits <= FEW_EXITS &&
            guest.vcpu.regs->rcx == TOTAL - PASSES + 1;
    breakpoints_remove(&set, &both);
    ok(good && is_clean(code, length), "a condition, then a count,", cpl, NULL);
}

static struct trace_condition memory_is(uint64_t value)
{
    return (struct trace_condition){.memory = true, .va = MICRO_DATA, .value = value};
}

static void test_conditions(unsigned cpl)
{
    const struct trace_condition early = reg_is(2, TOTAL - 2), late = reg_is(2, TOTAL - PASSES + 1);

    test_countdown(PROGRAM(loop), cpl, ADDRESS(loop, loop_at));
    test_countdown(PROGRAM(near_code), cpl, ADDRESS(near_code, near_at));
    test_condition("a register at the millionth pass", PROGRAM(loop), cpl, ADDRESS(loop, loop_at),
                   early, late);
    test_condition("memory at the millionth pass", PROGRAM(loop), cpl, ADDRESS(loop, loop_at),
                   memory_is(6), memory_is(3 * (PASSES - 1)));
    test_condition("short and RIP-relative instructions, a register", PROGRAM(near_code), cpl,
                   ADDRESS(near_code, near_at), early, late);
    test_condition("short and RIP-relative instructions, memory", PROGRAM(near_code), cpl,
                   ADDRESS(near_code, near_at), memory_is(2), memory_is(PASSES - 1));
}

/* ---- several ---- */

static void test_nested(unsigned cpl, const struct breakpoint_means *means)
{
    static const struct trace_condition third = {.reg = 2, .value = 2};
    struct breakpoint outer = {.va = ADDRESS(nested, outer_at), .cpl = cpl};
    struct breakpoint inner = {
        .va = ADDRESS(nested, inner_at), .cpl = cpl, .condition = &third, .conditions = 1};
    struct breakpoint beside = {.va = ADDRESS(nested, beside_at), .cpl = cpl};
    struct breakpoint twin = outer;
    bool good = true;

    start(PROGRAM(nested), cpl, means);
    add(&outer);
    add(&inner);
    add(&beside);
    add(&twin);
    for (unsigned round = 0; round < 5; round++) {
        good &= run() == BREAKPOINT_HIT && outer.hit && twin.hit && !inner.hit && !beside.hit &&
                guest.vcpu.regs->rip == outer.va && is_clean(PROGRAM(nested));
        step();
        for (unsigned pass = 0; pass < 4; pass++) {
            if (pass == 2) {
                good &= run() == BREAKPOINT_HIT && inner.hit && !outer.hit &&
                        guest.vcpu.regs->rip == inner.va && guest.vcpu.regs->rcx == 2;
                step();
            }
            good &= run() == BREAKPOINT_HIT && beside.hit && !inner.hit &&
                    guest.vcpu.regs->rcx == 4 - pass && is_clean(PROGRAM(nested));
            step();
        }
    }
    good &= is_done(run()) && guest.vcpu.regs->rax == 20;
    breakpoints_remove(&set, &twin);
    breakpoints_remove(&set, &beside);
    breakpoints_remove(&set, &inner);
    breakpoints_remove(&set, &outer);
    ok(good && is_clean(PROGRAM(nested)), "four, two at one place and two side by side", cpl,
       means);
}

static void test_once(unsigned cpl, const struct breakpoint_means *means)
{
    struct breakpoint outer = {.va = ADDRESS(nested, outer_at), .cpl = cpl};
    struct breakpoint beside = {.va = ADDRESS(nested, beside_at), .cpl = cpl};

    start(PROGRAM(nested), cpl, means);
    add(&outer);
    bool good = run() == BREAKPOINT_HIT && guest.vcpu.regs->rip == outer.va && outer.hit;
    breakpoints_remove(&set, &outer);
    add(&beside);
    good &= run() == BREAKPOINT_HIT && guest.vcpu.regs->rip == beside.va && beside.hit &&
            guest.vcpu.regs->rcx == 4 && guest.vcpu.regs->rax == 1;
    breakpoints_remove(&set, &beside);
    ok(good && is_clean(PROGRAM(nested)), "one, then another", cpl, means);
}

static unsigned looks;

static bool kick_at_second(const struct breakpoint *b, struct vcpu *vcpu,
                           const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    (void)b;
    (void)regs;
    (void)sregs;
    if (++looks == 2)
        vcpu_kick(vcpu);
    return false;
}

/* Whoever waits for a kick gets no second one. */
static void test_kick(unsigned cpl, const struct breakpoint_means *means)
{
    struct breakpoint beside = {
        .va = ADDRESS(nested, beside_at), .cpl = cpl, .stops = kick_at_second};

    looks = 0;
    start(PROGRAM(nested), cpl, means);
    add(&beside);
    const bool good = run() == BREAKPOINT_STOPPED && looks == 2 && is_clean(PROGRAM(nested));
    breakpoints_remove(&set, &beside);
    ok(good, "a kick while a pass is stepped over", cpl, means);
}

/* Six changes of watched memory by three REPs, each of which is one pass of a breakpoint on it.
 * *second: the place behind the first one of the second REP. */
static bool watch_repeats(struct breakpoint *beside, struct landmark *second)
{
    struct watchpoint watched = {.va = REPEAT_WATCHED, .len = 2};
    struct kvm_sregs sregs;
    struct err e = {0};
    bool good = true;

    if (breakpoints_watch(&set, &watched, &e) < 0)
        fail(e.text);
    for (unsigned i = 0; i < 6; i++) {
        good &= run() == BREAKPOINT_HIT && watched.hit && set.repeating &&
                guest.vcpu.regs->rip == beside->va && guest.vcpu.regs->rbx == 3 - i / 2 &&
                guest.vcpu.regs->rcx == REPEAT_COUNT - 17 - i % 2 && beside->passes == i / 2 + 1;
        vcpu_get_sregs(&guest.vcpu, &sregs);
        if (i == 2)
            fingerprint_take(&guest.vcpu, guest.vcpu.regs, &sregs, second);
    }
    good &= is_done(run()) && !set.repeating && beside->passes == 3;
    breakpoints_unwatch(&set, &watched);
    return good;
}

static void test_repeat(unsigned cpl, const struct breakpoint_means *means)
{
    struct breakpoint beside = {.va = ADDRESS(repeat, repeat_at), .cpl = cpl, .stops = never_stops};
    struct landmark place = {.gpa = beside.va};
    struct trace_condition conditions[TRACE_CONDITIONS];

    start(PROGRAM(repeat), cpl, means);
    add(&beside);
    bool good = watch_repeats(&beside, &place);
    breakpoints_remove(&set, &beside);
    ok(good && is_clean(PROGRAM(repeat)), "watched memory that REPs write", cpl, means);

    start(PROGRAM(repeat), cpl, means);
    beside.passes = 0;
    add(&beside);
    good = is_done(run()) && beside.passes == 3;
    breakpoints_remove(&set, &beside);
    ok(good && is_clean(PROGRAM(repeat)), "a REP is one pass", cpl, means);

    struct breakpoint within = landmark_breakpoint_within(&place, conditions);
    start(PROGRAM(repeat), cpl, means);
    beside.passes = 0;
    add(&beside);
    add(&within);
    good = run() == BREAKPOINT_HIT && within.hit && !beside.hit && set.repeating &&
           guest.vcpu.regs->rbx == 2 && guest.vcpu.regs->rcx == REPEAT_COUNT - 17 &&
           beside.passes == 2;
    breakpoints_remove(&set, &within);
    good &= is_done(run()) && beside.passes == 3;
    breakpoints_remove(&set, &beside);
    ok(good && is_clean(PROGRAM(repeat)), "a place between two iterations of the second REP", cpl,
       means);
}

static void test_special(unsigned cpl, const struct breakpoint_means *means)
{
    static const struct trace_condition never = {.reg = 1, .value = 99};
    const uint64_t at[] = {ADDRESS(special, pushf_at), ADDRESS(special, popf_at),
                           ADDRESS(special, out_at)};
    struct breakpoint b[3];
    bool good = true;

    start(PROGRAM(special), cpl, means);
    for (unsigned i = 0; i < 3; i++) {
        b[i] = (struct breakpoint){.va = at[i], .cpl = cpl, .condition = &never, .conditions = 1};
        add(&b[i]);
    }
    const uint64_t stack = guest.vcpu.regs->rsp;
    for (unsigned round = 0; round < 2; round++)
        good &= run() == BREAKPOINT_EXIT && last.kind == EXIT_PIO_OUT && last.at == 0x51;
    good &= is_done(run());
    uint64_t pushed;
    memcpy(&pushed, guest_memory_at(&guest.vm.memory, stack - 8, 8), 8);
    good &= !(pushed & 0x100) && !(guest.vcpu.regs->rflags & 0x100);
    for (unsigned i = 0; i < 3; i++) {
        good &= means == &breakpoint_step || b[i].passes == 2;
        breakpoints_remove(&set, &b[i]);
    }
    ok(good && is_clean(PROGRAM(special)), "passing PUSHF, POPF and OUT", cpl, means);
}

/* See begin_block() in vmm/points/trace/trace_copy.c. */
static void test_exchange(unsigned cpl)
{
    static const struct trace_condition never = {.reg = 1, .value = 99};
    struct breakpoint b = {
        .va = ADDRESS(exchange, exchange_at), .cpl = cpl, .condition = &never, .conditions = 1};

    start(PROGRAM(exchange), cpl, NULL);
    add(&b);
    const bool good =
        is_done(run()) && b.passes >= 1 && guest.vcpu.regs->rsi == 0 && guest.vcpu.regs->rax == 0;
    breakpoints_remove(&set, &b);
    ok(good && is_clean(PROGRAM(exchange)), "leaving a trace behind CMPXCHG16B", cpl, NULL);
}

/* User code's way back is within the guest; kernel code could see the trace outside of it. */
static void test_leaving(void)
{
    const struct trace_condition late = reg_is(2, TOTAL - LEAVING_PASSES);
    struct breakpoint b = {
        .va = ADDRESS(leaving, leaving_at), .cpl = 3, .condition = &late, .conditions = 1};

    start(PROGRAM(leaving), 3, NULL);
    add(&b);
    const bool good = run() == BREAKPOINT_HIT && guest.vcpu.regs->rcx == late.value &&
                      set.exits <= FEW_EXITS && is_clean(PROGRAM(leaving));
    printf("# %llu exits\n", (unsigned long long)set.exits);
    breakpoints_remove(&set, &b);
    ok(good, "passes that leave the trace", 3, NULL);
}

/* Few passes with much code between them: see TRACE_EXITS. */
static void test_sprawl(unsigned cpl)
{
    static const struct trace_condition last_pass = {.reg = 4, .value = 1};
    struct breakpoint b = {
        .va = ADDRESS(sprawl, sprawl_at), .cpl = cpl, .condition = &last_pass, .conditions = 1};

    start(PROGRAM(sprawl), cpl, NULL);
    add(&b);
    const bool good =
        run() == BREAKPOINT_HIT && guest.vcpu.regs->rsi == 1 && set.exits <= SPRAWL_EXITS;
    printf("# %llu exits\n", (unsigned long long)set.exits);
    breakpoints_remove(&set, &b);
    ok(good && is_clean(PROGRAM(sprawl)), "few passes with much code between them,", cpl, NULL);
}

static void test_landing(unsigned cpl)
{
    const uint64_t rbx = 1;
    struct landing_stats stats;
    struct landmark l = take(PROGRAM(nested), inner_at, cpl, 7);

    bool good = land(&l, &stats) == LANDED && guest.vcpu.regs->rax == 7;
    ok(good && stats.exits == 0, "landing where the vCPU stands, which does not run", cpl, NULL);
    start(PROGRAM(nested), cpl, NULL);
    good = land(&l, &stats) == LANDED && guest.vcpu.regs->rax == 7 && stats.exits > 0;
    ok(good && is_clean(PROGRAM(nested)), "landing on a pass ahead", cpl, NULL);

    l = take(PROGRAM(nested), inner_at, cpl, 7);
    l.gpa = ~0ull;
    ok(land(&l, &stats) == LAND_CHANGED, "a landing where there is no code", cpl, NULL);

    l = take(PROGRAM(nested), inner_at, cpl, 7);
    l.regs[rbx] += 70;
    good = land(&l, &stats) == LAND_MISSED && is_done(BREAKPOINT_EXIT);
    good &= stats.passes.nearest == 1 && stats.passes.nearest_other == 1u << rbx &&
            stats.passes.nearest_regs[rbx] == l.regs[rbx] - 70;
    ok(good && is_clean(PROGRAM(nested)), "a landing that fails says what was nearly it", cpl,
       NULL);
}

/* ---- steps ---- */

#define STACK_TOP 0x90000u /* of the kernel: vmm/kvm/micro_guest.c */
#define STORM_NS  40000u
#define ENTRIES   3000u

static void kick_guest(void *vcpu)
{
    vcpu_kick(vcpu);
}

/* How many steps of an instruction lead to the #DB of the guest's own TF, as its frame shows. */
static unsigned entries_with_tf(struct stepper *stepper, const struct kvm_regs *before)
{
    const uint64_t *frame = guest_memory_at(&guest.vm.memory, STACK_TOP - 40, 40);
    struct step done;
    struct err e = {0};
    unsigned good = 0;

    for (unsigned i = 0; i < ENTRIES; i++) {
        vcpu_set_regs(&guest.vcpu, before);
        do {
            if (stepper_step(stepper, &done, &last, &e) < 0)
                fail(e.text);
        } while (done.kind == STEP_KICK);
        good += done.kind == STEP_ENTRY && frame[0] != before->rip && frame[2] & RFLAGS_TF;
    }
    return good;
}

/* A kick may come when the frame is pushed and the step has not ended. */
static void test_kicked_entries(void)
{
    const struct itimerspec storm = {{.tv_nsec = STORM_NS}, {.tv_nsec = STORM_NS}};
    struct kick_target target;
    struct stepper stepper;
    struct err e = {0};
    timer_t timer;

    start(PROGRAM(nested), 0, NULL);
    struct kvm_regs before = *guest.vcpu.regs;
    before.rip = ADDRESS(nested, inner_at);
    before.rflags |= RFLAGS_TF;
    before.rsp = STACK_TOP;
    stepper_init(&stepper, &guest.vcpu);
    if (kick_target_begin(&target, kick_guest, &guest.vcpu, &e) < 0 ||
        kick_timer_create(&timer, &e) < 0)
        fail(e.text);
    timer_settime(timer, 0, &storm, NULL);
    const unsigned good = entries_with_tf(&stepper, &before);
    timer_delete(timer);
    kick_target_end(&target);
    stepper_close(&stepper);
    ok(good == ENTRIES, "steps of a program that steps itself, kicked all the time", 0, NULL);
    if (good != ENTRIES)
        printf("# %u of %u\n", good, ENTRIES);
}

static void test_means(unsigned cpl, const struct breakpoint_means *means)
{
    if (!means->works(&guest.vm, cpl)) {
        printf("ok %u at CPL%u, by %s # SKIP doctor says that this KVM lacks it\n", ++number, cpl,
               means->name);
        return;
    }
    test_once(cpl, means);
    if (native) /* such a KVM often lacks what going on takes */
        return;
    test_nested(cpl, means);
    test_kick(cpl, means);
    test_repeat(cpl, means);
    test_special(cpl, means);
}

int main(int argc, char **argv)
{
    static const struct breakpoint_means *const means[] = {&breakpoint_hlt, &breakpoint_register,
                                                           &breakpoint_step};
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    native = argc > 1 && !strcmp(argv[1], "native");
    if (native && access("/dev/kvm", R_OK | W_OK) < 0) {
        printf("1..0 # SKIP /dev/kvm: %s\n", strerror(errno));
        return 0;
    }
    if (!native && runs_elsewhere("breakpoints", argv, &status))
        return status;
    guest.vcpu.fd = guest.vm.fd = -1;
    for (unsigned cpl = 0; cpl <= (native ? 0 : 3); cpl += 3) {
        for (unsigned i = 0; i < sizeof means / sizeof *means; i++)
            test_means(cpl, means[i]);
        if (!native) {
            test_conditions(cpl);
            test_exchange(cpl);
            test_sprawl(cpl);
            test_landing(cpl);
        }
    }
    if (!native) {
        test_leaving();
        test_kicked_entries();
    }
    printf("1..%u\n", number);
    return bad ? 1 : 0;
}
