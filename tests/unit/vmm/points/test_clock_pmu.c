/*
 * Landings of the branch-counting clock (vmm/points/pmu/pmu_land.c) on a simulated CPU: always the
 * very instruction, or "missed".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/random.h"
#include "tests/unit/vmm/points/pmu/pmu_sim.h"

/* ---- programs ---- */

static void put_straight(struct cpu *c, bool flags)
{
    for (uint64_t n = 1 + below(4); n; n--) {
        if (flags && below(20) == 0)
            put(c, FLAGS, 0, 0, 0);
        else if (below(2))
            put(c, NOP, 0, 0, 0);
        else
            put(c, ADD, 0, 1, 0);
    }
}

/* Nested loops; the counters of those are hidden that pass their places with equal registers. */
static void put_loop(struct cpu *c, unsigned depth, bool hidden, bool flags)
{
    unsigned reg = 1 + depth + (hidden ? REGISTERS / 2 - 1 : 0), start;

    put(c, SET, reg, (unsigned)(1 + below(depth ? 12 : 150)), 0);
    start = c->length;
    for (uint64_t parts = 1 + below(2); parts; parts--) {
        put_straight(c, flags);
        if (depth && below(3))
            put_loop(c, depth - 1, hidden, flags);
        if (below(3) == 0) /* over nothing, and without a branch that counts */
            put(c, JUMP, 0, 0, c->length + 1);
    }
    put(c, LOOP, reg, 0, start);
}

static void make_program(struct cpu *c, bool hidden, bool flags)
{
    *c = (struct cpu){0};
    for (unsigned i = 0; i < 3; i++)
        put_loop(c, 2, hidden, flags);
    put(c, EXIT, 0, 0, 0);
}

/* ADD is how visible registers change: hidden programs have none, so all passes look the same. */
static void hide_everything(struct cpu *c)
{
    for (unsigned i = 0; i < c->length; i++)
        if (c->code[i].opcode == ADD)
            c->code[i].opcode = NOP;
}

/* Describe the place after `retired` instructions. */
static struct landmark describe(const struct cpu *program, uint64_t retired)
{
    struct landmark l = {.counted = true};
    struct cpu c = *program;

    while (c.retired < retired)
        assert_true(execute(&c));
    l.branches = c.branches;
    l.regs[REGISTER_RIP] = c.pc;
    memcpy(l.regs, c.regs, sizeof c.regs / 2);
    return l;
}

static uint64_t length_of(const struct cpu *program)
{
    struct cpu c = *program;

    while (execute(&c))
        ;
    return c.retired;
}

static enum clock_landing land(struct sim *s, const struct landmark *l, struct vcpu_exit *exit)
{
    static const atomic_bool not_interrupted = false;
    struct err e = {0};

    return pmu_land(&s->target, s->offset + l->branches, l, exit, &not_interrupted, &e);
}

struct tally {
    unsigned landed, missed, wrong;
};

/* Four landings in each of so many programs. */
static struct tally land_often(unsigned programs, const struct faults *faults, bool hidden)
{
    struct tally tally = {0};
    struct vcpu_exit exit;

    for (unsigned i = 0; i < programs; i++) {
        struct cpu program;
        make_program(&program, hidden, false);
        if (hidden)
            hide_everything(&program);
        uint64_t length = length_of(&program);
        for (unsigned j = 0; j < 4; j++) {
            struct sim s;
            uint64_t at = below(length);
            struct landmark l = describe(&program, at);
            make_sim(&s, &program, faults);
            enum clock_landing result = land(&s, &l, &exit);
            tally.landed += result == LANDED;
            tally.wrong += result == LANDED && s.cpu.retired != at;
            tally.missed += result == LAND_MISSED;
            assert_true(result == LANDED || result == LAND_MISSED);
            assert_int_equal(s.period, 0);
        }
    }
    assert_int_equal(tally.wrong, 0);
    return tally;
}

/* ---- landings ---- */

static void test_exact_overflows(void **state)
{
    const struct faults none = {0};

    (void)state;
    seed = 1;
    assert_int_equal(land_often(rounds(250), &none, false).landed, 4 * rounds(250));
    assert_int_equal(land_often(rounds(250), &none, true).landed, 4 * rounds(250));
}

static void test_late_overflows(void **state)
{
    (void)state;
    seed = 2;
    for (unsigned skid = 0; skid <= SKID; skid += 10) {
        const struct faults late = {.skid = skid};
        assert_int_equal(land_often(50, &late, false).landed, 200);
        assert_int_equal(land_often(50, &late, true).landed, 200);
    }
}

static void test_overflows_for_no_reason(void **state)
{
    const struct faults spurious = {.skid = SKID, .spurious = 20000};

    (void)state;
    seed = 3;
    assert_int_equal(land_often(rounds(250), &spurious, true).landed, 4 * rounds(250));
}

/* One lost overflow is made up for by the next. */
static void test_single_lost_overflows(void **state)
{
    const struct faults lost = {.skid = SKID, .lost = 500, .never_lost_twice = true};

    (void)state;
    seed = 4;
    assert_int_equal(land_often(rounds(500), &lost, true).landed, 4 * rounds(500));
}

/* When more are lost the guest may run past the place: that is noticed. */
static void test_many_lost_overflows(void **state)
{
    const struct faults lost = {.skid = SKID, .lost = 900};

    (void)state;
    seed = 5;
    struct tally tally = land_often(rounds(500), &lost, true);
    assert_true(tally.landed > 0 && tally.missed > 0);
    assert_int_equal(tally.landed + tally.missed, 4 * rounds(500));
}

static void test_overflows_later_than_the_table_says(void **state)
{
    const struct faults late = {.skid = 20 * SKID, .spurious = 1000};

    (void)state;
    seed = 6;
    struct tally tally = land_often(rounds(250), &late, true);
    assert_true(tally.landed > 0 && tally.missed > 0);
}

/* Registers tell the passes apart here: the wrong one is never taken. */
static void test_counts_polluted_by_the_host(void **state)
{
    const struct faults polluted = {.skid = SKID, .polluted = 300};

    (void)state;
    seed = 7;
    struct tally tally = land_often(rounds(500), &polluted, false);
    assert_true(tally.missed > tally.landed);
}

/* An instruction that must not be stepped over (PUSHF and the like): the rest is searched. */
static void test_instructions_that_steps_leak_into(void **state)
{
    const struct faults late = {.skid = SKID};
    unsigned searches = 0;

    (void)state;
    seed = 8;
    for (unsigned i = 0; i < 200; i++) {
        struct vcpu_exit exit;
        struct cpu program;
        struct sim s;
        make_program(&program, false, true);
        uint64_t at = below(length_of(&program));
        struct landmark l = describe(&program, at);
        make_sim(&s, &program, &late);
        assert_int_equal(land(&s, &l, &exit), LANDED);
        searches += s.searches;
        assert_int_equal(s.cpu.retired, at);
    }
    assert_true(searches > 10 && searches < 200);
}

static void make_endless(struct cpu *c)
{
    *c = (struct cpu){0};
    put(c, ADD, 0, 1, 0);
    put(c, JUMP, 0, 0, 0);
}

/* Nothing is counted in a loop of unconditional jumps. */
static void test_code_without_conditional_branches(void **state)
{
    const struct faults none = {0};
    struct vcpu_exit exit;
    struct cpu program;
    struct sim s;

    (void)state;
    seed = 9;
    make_endless(&program);
    for (uint64_t at = 1000; at < 10000000; at *= 17) {
        struct landmark l = describe(&program, at);
        make_sim(&s, &program, &none);
        assert_int_equal(land(&s, &l, &exit), LANDED);
        assert_int_equal(s.cpu.retired, at);
        assert_int_equal(s.searches, at > 1000000);
    }
}

/* A place that does not exist: from a damaged recording, or after a divergence. */
static void test_places_that_are_never_reached(void **state)
{
    const struct faults none = {0};
    struct vcpu_exit exit;
    struct cpu program;
    struct sim s;

    (void)state;
    seed = 10;
    make_program(&program, false, false);
    for (uint64_t branches = 1; branches; branches <<= 1) {
        struct landmark l = {.counted = true, .branches = branches};
        l.regs[REGISTER_RIP] = CODE;
        make_sim(&s, &program, &none);
        assert_int_equal(land(&s, &l, &exit), LAND_MISSED);
        assert_true(exit.kind == EXIT_HLT || exit.kind == EXIT_FORCED);
    }
}

static void test_interrupted_and_failing(void **state)
{
    static const atomic_bool interrupted = true, quiet = false;
    const struct faults none = {0};
    struct vcpu_exit exit;
    struct cpu program;
    struct sim s;
    struct err e;

    (void)state;
    seed = 11;
    make_program(&program, false, false);
    struct landmark l = describe(&program, length_of(&program) - 1);
    make_sim(&s, &program, &none);
    assert_int_equal(pmu_land(&s.target, s.offset + l.branches, &l, &exit, &interrupted, &e),
                     LAND_STOPPED);
    make_sim(&s, &program, &none);
    s.taken_away = true;
    assert_int_equal(pmu_land(&s.target, s.offset + l.branches, &l, &exit, &quiet, &e),
                     LAND_FAILED);
    assert_string_equal(e.text, "taken away");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_overflows),
        cmocka_unit_test(test_late_overflows),
        cmocka_unit_test(test_overflows_for_no_reason),
        cmocka_unit_test(test_single_lost_overflows),
        cmocka_unit_test(test_many_lost_overflows),
        cmocka_unit_test(test_overflows_later_than_the_table_says),
        cmocka_unit_test(test_counts_polluted_by_the_host),
        cmocka_unit_test(test_instructions_that_steps_leak_into),
        cmocka_unit_test(test_code_without_conditional_branches),
        cmocka_unit_test(test_places_that_are_never_reached),
        cmocka_unit_test(test_interrupted_and_failing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
