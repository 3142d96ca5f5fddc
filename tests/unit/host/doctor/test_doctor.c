/* What doctor is built of, without depending on what this machine's KVM can do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/doctor_report.h"

static void probe_fine(struct probe_outcome *o)
{
    probe_says(o, PROBE_OK, "saw %d", 42);
}

static void probe_absent(struct probe_outcome *o)
{
    probe_says(o, PROBE_MISSING, "no such thing");
}

static void probe_mute(struct probe_outcome *o)
{
    (void)o;
}

static void probe_crashes(struct probe_outcome *o)
{
    (void)o;
    signal(SIGSEGV, SIG_DFL); /* the address sanitizer has a handler */
    raise(SIGSEGV);
}

static void probe_leaves(struct probe_outcome *o)
{
    (void)o;
    _exit(0);
}

static void probe_hangs(struct probe_outcome *o)
{
    (void)o;
    for (;;)
        pause();
}

/* Like a kernel that does not let go of the process at SIGALRM. */
static void probe_hangs_hard(struct probe_outcome *o)
{
    (void)o;
    signal(SIGALRM, SIG_IGN);
    for (;;)
        pause();
}

static struct probe_outcome isolated(void (*run)(struct probe_outcome *), unsigned limit_ms)
{
    struct probe_outcome o = {.result = PROBE_RESULTS};

    isolated_run(run, limit_ms, &o);
    return o;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void test_outcomes_come_back(void **state)
{
    (void)state;
    struct probe_outcome o = isolated(probe_fine, 1000);
    assert_int_equal(o.result, PROBE_OK);
    assert_string_equal(o.detail, "saw 42");
    o = isolated(probe_absent, 1000);
    assert_int_equal(o.result, PROBE_MISSING);
    assert_string_equal(o.detail, "no such thing");
    assert_int_equal(isolated(probe_mute, 1000).result, PROBE_BROKEN);
}

static void test_crash_is_contained(void **state)
{
    (void)state;
    struct probe_outcome o = isolated(probe_crashes, 1000);
    assert_int_equal(o.result, PROBE_BROKEN);
    assert_non_null(strstr(o.detail, "signal 11"));
    o = isolated(probe_leaves, 1000);
    assert_int_equal(o.result, PROBE_BROKEN);
    assert_non_null(strstr(o.detail, "without a result"));
}

static void test_hang_is_stopped(void **state)
{
    (void)state;
    double start = seconds();
    struct probe_outcome o = isolated(probe_hangs, 50);
    assert_int_equal(o.result, PROBE_BROKEN);
    assert_non_null(strstr(o.detail, "hung and was stopped after 50 ms"));
    assert_true(seconds() - start < 1);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    start = seconds();
    o = isolated(probe_hangs, 50);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    assert_non_null(strstr(o.detail, "hung"));
    assert_true(seconds() - start < 1);
}

static void test_hard_hang_is_killed(void **state)
{
    (void)state;
    struct probe_outcome o = isolated(probe_hangs_hard, 10);
    assert_int_equal(o.result, PROBE_BROKEN);
    assert_non_null(strstr(o.detail, "hung"));
}

static const struct probe needed = {"a needed thing", probe_fine, true, "nothing"};
static const struct probe luxury = {"a \"luxury\"", probe_fine, false, "something else"};

static struct doctor_report report_of(struct probe_finding findings[2], enum probe_result first,
                                      enum probe_result second)
{
    findings[0] = (struct probe_finding){&needed, {.result = first, .detail = "seen"}};
    findings[1] = (struct probe_finding){&luxury, {.result = second, .detail = "seen too"}};
    return (struct doctor_report){
        .host = {.kernel = "Linux 6.1",
                 .cpu = "a CPU",
                 .modules = {"kvm"},
                 .module_count = 1,
                 .virtualizes = true,
                 .device = true,
                 .emulated = true},
        .findings = findings,
        .count = 2,
    };
}

static void test_verdict_of_good_kvm(void **state)
{
    struct probe_finding f[2];
    struct doctor_report r = report_of(f, PROBE_OK, PROBE_MISSING);

    (void)state;
    doctor_judge(&r);
    assert_true(r.native && r.works);
    assert_string_equal(r.verdict, "this host can record and replay");
    r.host.virtualizes = false;
    doctor_judge(&r);
    assert_true(r.native && r.works);
    assert_non_null(strstr(r.verdict, "--host native"));
    r.host.inside = true;
    doctor_judge(&r);
    assert_string_equal(r.verdict, "the emulated KVM host can record and replay");
}

static void test_verdict_of_bad_kvm(void **state)
{
    struct probe_finding f[2];
    struct doctor_report r = report_of(f, PROBE_BROKEN, PROBE_OK);

    (void)state;
    r.host.virtualizes = false;
    doctor_judge(&r);
    assert_false(r.native);
    assert_true(r.works);
    assert_string_equal(r.verdict, "this /dev/kvm cannot run real guests (a needed thing: seen): "
                                   "dittovm uses the emulated KVM host");
    r.host.virtualizes = true;
    doctor_judge(&r);
    assert_non_null(strstr(r.verdict, "give --host emulated"));
    r.host.device = false;
    doctor_judge(&r);
    assert_string_equal(r.verdict, "this host has no /dev/kvm: dittovm uses the emulated KVM host");
    r.host.chosen = HOST_NATIVE;
    doctor_judge(&r);
    assert_false(r.works);
    r.host.chosen = HOST_AUTO;
    r.host.emulated = false;
    strcpy(r.host.emulated_why, "install it");
    doctor_judge(&r);
    assert_false(r.works);
    assert_non_null(strstr(r.verdict, "install it"));
    r.host.inside = true;
    doctor_judge(&r);
    assert_false(r.works);
}

/* Run show(r) with stdout in a file; the text is to be freed. */
static char *captured(void (*show)(const struct doctor_report *), const struct doctor_report *r)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    show(r);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    long size = ftell(f) >= 0 && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    char *text = calloc(1, (size_t)size + 1);
    rewind(f);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    return text;
}

static void test_json(void **state)
{
    struct probe_finding f[2];
    struct doctor_report r = report_of(f, PROBE_OK, PROBE_BROKEN);

    (void)state;
    strcpy(f[1].outcome.detail, "no \xff UTF-8");
    doctor_judge(&r);
    char *text = captured(doctor_show_json, &r);
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    json_t *probes = json_object_get(j, "probes");
    assert_int_equal(json_array_size(probes), 2);
    json_t *first = json_array_get(probes, 0), *second = json_array_get(probes, 1);
    assert_string_equal(json_string_value(json_object_get(first, "result")), "ok");
    assert_null(json_object_get(first, "instead"));
    assert_string_equal(json_string_value(json_object_get(second, "name")), "a \"luxury\"");
    assert_string_equal(json_string_value(json_object_get(second, "result")), "broken");
    assert_string_equal(json_string_value(json_object_get(second, "instead")), "something else");
    assert_true(json_is_true(json_object_get(j, "native")));
    assert_true(json_is_true(json_object_get(j, "works")));
    assert_string_equal(json_string_value(json_object_get(j, "verdict")), r.verdict);
    json_t *machine = json_object_get(j, "machine");
    assert_string_equal(json_string_value(json_object_get(machine, "auto")), "native");
    json_decref(j);
    free(text);
}

static void test_table(void **state)
{
    struct probe_finding f[2];
    struct doctor_report r = report_of(f, PROBE_OK, PROBE_MISSING);

    (void)state;
    doctor_judge(&r);
    char *text = captured(doctor_show_table, &r);
    assert_non_null(strstr(text, "Linux 6.1, a CPU"));
    assert_non_null(strstr(text, "\na needed thing  ok       seen\n"));
    assert_non_null(strstr(text, "\na \"luxury\"      missing  seen too -> something else\n"));
    assert_non_null(strstr(text, "\nthis host can record and replay\n"));
    free(text);
}

/* On any machine the quick check decides, soon, and with one line. */
static void test_quick_check_is_quick(void **state)
{
    struct err e = {0};
    double start = seconds();

    (void)state;
    int rc = doctor_quick_check(&e);
    assert_true(seconds() - start < 1.5);
    if (rc == 0) {
        assert_string_equal(e.text, "");
    } else {
        assert_int_equal(rc, -1);
        assert_int_equal(e.status, STATUS_ERROR);
        assert_non_null(strstr(e.text, "/dev/kvm"));
        assert_null(strchr(e.text, '\n'));
    }
}

/* Every probe comes back with a result of its own, whatever this machine is. */
static void test_probes_are_complete(void **state)
{
    static const struct probe *const groups[] = {doctor_guest_probes, doctor_debug_probes,
                                                 doctor_leak_probes, doctor_host_probes,
                                                 doctor_memory_probes};
    unsigned count = 0;

    (void)state;
    for (unsigned i = 0; i < sizeof groups / sizeof *groups; i++) {
        for (const struct probe *p = groups[i]; p->name; p++, count++) {
            assert_non_null(p->run);
            assert_true(strlen(p->instead) > 0);
        }
    }
    assert_in_range(count, 25, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcomes_come_back),
        cmocka_unit_test(test_crash_is_contained),
        cmocka_unit_test(test_hang_is_stopped),
        cmocka_unit_test(test_hard_hang_is_killed),
        cmocka_unit_test(test_verdict_of_good_kvm),
        cmocka_unit_test(test_verdict_of_bad_kvm),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_quick_check_is_quick),
        cmocka_unit_test(test_probes_are_complete),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
