/*
 * The self-test that decides whether a branch counter is good enough
 * (vmm/points/pmu/pmu_selftest.c), with simulated counters, and the table of CPUs
 * (vmm/points/pmu/pmu_events.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/vmm/points/pmu/pmu_sim.h"
#include "vmm/points/pmu/pmu_selftest.h"

/* ---- the self-test ---- */

struct trial_sim {
    struct pmu_trial trial; /* first */
    struct sim sim, spoiler;
    unsigned host_branches, inexact;
    uint64_t spoils;
};

static const struct pmu_event event = {.name = "a CPU", .raw = 1, .skid = SKID, .cure = "cure it"};

static int trial_start(struct pmu_trial *t, struct err *e)
{
    struct trial_sim *s = (struct trial_sim *)t;

    (void)e;
    s->sim.pollution += s->sim.cpu.branches;
    s->sim.cpu.pc = s->sim.cpu.branches = 0;
    s->sim.kicked = false;
    s->sim.kick_at = 0;
    return 0;
}

static int trial_run(struct pmu_trial *t, struct vcpu_exit *exit, bool *finished, struct err *e)
{
    struct trial_sim *s = (struct trial_sim *)t;

    (void)e;
    sim_advance(&s->sim, UINT64_MAX, exit);
    if (below(1000) < s->inexact)
        s->sim.pollution++;
    s->spoiler.pollution += s->spoils;
    *finished = exit->kind == EXIT_HLT && s->sim.cpu.pc == s->sim.cpu.length - 1;
    if (exit->kind == EXIT_HLT && !*finished)
        s->sim.cpu.pc++;
    return 0;
}

static void trial_work(struct pmu_trial *t)
{
    ((struct trial_sim *)t)->sim.pollution += ((struct trial_sim *)t)->host_branches;
}

static const struct pmu_trial_ops trial_ops = {trial_start, trial_run, trial_work};

/* The same shape as the micro-guest of vmm/points/pmu/pmu_trial.c. */
static void make_trial(struct trial_sim *s, const struct faults *faults)
{
    const struct faults none = {0};
    struct cpu program = {0};

    put(&program, SET, 1, 100, 0);
    put(&program, SET, 2, 999, 0);
    put(&program, LOOP, 2, 0, 2);
    put(&program, EXIT, 0, 0, 0);
    put(&program, LOOP, 1, 0, 1);
    put(&program, EXIT, 0, 0, 0);
    *s = (struct trial_sim){.trial = {.ops = &trial_ops, .event = &event, .branches = 100000}};
    make_sim(&s->sim, &program, faults);
    make_sim(&s->spoiler, &program, &none);
    s->trial.counter = &s->sim.counter;
    s->trial.spoiler = &s->spoiler.counter;
}

static void check_accepted(struct trial_sim *s)
{
    struct err e = {0};

    assert_int_equal(pmu_selftest(&s->trial, &e), 0);
}

static void check_refused(struct trial_sim *s, const char *reason)
{
    struct err e = {0};

    assert_int_equal(pmu_selftest(&s->trial, &e), -1);
    if (!strstr(e.text, reason))
        fail_msg("refused with '%s', not '%s'", e.text, reason);
}

static void test_good_counters_are_accepted(void **state)
{
    struct trial_sim s;

    (void)state;
    seed = 20;
    for (unsigned skid = 0; skid <= SKID; skid += 20) {
        make_trial(&s, &(struct faults){.skid = skid});
        check_accepted(&s);
        assert_true(s.trial.latest <= skid && s.trial.latest >= skid / 2);
    }
    s.trial.spoiler = NULL;
    check_accepted(&s);
}

static void test_bad_counters_are_refused(void **state)
{
    struct trial_sim s;

    (void)state;
    seed = 21;
    make_trial(&s, &(struct faults){0});
    s.host_branches = 1;
    check_refused(&s, "exclude_host does not hold");
    make_trial(&s, &(struct faults){.polluted = 100});
    check_refused(&s, "a guest with 100000 conditional branches counts 1000");
    make_trial(&s, &(struct faults){0});
    s.inexact = 30;
    check_refused(&s, "a guest with 100000 conditional branches counts 1000");
    make_trial(&s, &(struct faults){.lost = 1000});
    check_refused(&s, "does not stop the guest");
    make_trial(&s, &(struct faults){.skid = 2 * SKID});
    check_refused(&s, "branches late; on a CPU it should be 200 at most");
    make_trial(&s, &(struct faults){0});
    s.spoils = 1;
    check_refused(&s, "cure it");
    make_trial(&s, &(struct faults){0});
    s.sim.taken_away = true;
    check_refused(&s, "taken away");
}

/* ---- the table ---- */

static const struct pmu_event *find(const char *vendor, uint32_t signature)
{
    const struct pmu_cpu cpu = pmu_cpu_of(vendor, signature);
    struct err e = {0};
    const struct pmu_event *found = pmu_event_find(&cpu, &e);

    if (!found)
        assert_non_null(strstr(e.text, vendor));
    return found;
}

static void test_table_of_cpus(void **state)
{
    (void)state;
    assert_string_equal(find("GenuineIntel", 0x206a7)->name, "Intel Sandy Bridge");
    assert_int_equal(find("GenuineIntel", 0x206a7)->raw, 0x01c4);
    assert_int_equal(find("GenuineIntel", 0x906ed)->skid, 100);
    assert_false(find("GenuineIntel", 0x906ed)->needs_smi_freeze);
    assert_true(find("GenuineIntel", 0xa0655)->needs_smi_freeze);
    assert_int_equal(find("GenuineIntel", 0x806f8)->raw, 0x11c4);
    assert_int_equal(find("GenuineIntel", 0x806f8)->skid, 125);
    assert_int_equal(find("GenuineIntel", 0xb06d1)->raw, 0x100000011c4);
    assert_int_equal(find("GenuineIntel", 0x506f1)->raw, 0x7ec4);
    assert_int_equal(find("AuthenticAMD", 0x800f12)->raw, 0xd1);
    assert_int_equal(find("AuthenticAMD", 0xa20f10)->skid, 10000);
    assert_int_equal(find("AuthenticAMD", 0xb40f40)->spoiler, 0x825);
    assert_string_equal(find("AuthenticAMD", 0xb00f21)->name, "AMD Zen 5");
}

static void test_unknown_cpus_are_refused(void **state)
{
    (void)state;
    assert_null(find("GenuineIntel", 0x006fb)); /* Merom counts no such thing */
    assert_null(find("GenuineIntel", 0x00f43)); /* Pentium 4 */
    assert_null(find("GenuineIntel", 0xf06f0));
    assert_null(find("AuthenticAMD", 0x600f20)); /* family 15h counts taken branches */
    assert_null(find("HygonGenuine", 0x900f01));
    assert_null(find("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_counters_are_accepted),
        cmocka_unit_test(test_bad_counters_are_refused),
        cmocka_unit_test(test_table_of_cpus),
        cmocka_unit_test(test_unknown_cpus_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
