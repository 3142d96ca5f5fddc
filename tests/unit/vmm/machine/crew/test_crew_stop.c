/* What the CPUs of a crew stand at: vmm/machine/crew/crew_stop.c on a crew made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hidden_ports.h"
#include "vmm/machine/crew/crew_inside.h"

#define HOOK_RIP 0xffffffff81000000u

static struct machine machine;
static struct machine_cpu cpu[3];
static struct kvm_regs regs[3];
static struct crew crew;

static int setup(void **state)
{
    (void)state;
    machine = (struct machine){0};
    crew = (struct crew){.machine = &machine, .count = 3};
    for (unsigned i = 0; i < crew.count; i++) {
        cpu[i] = (struct machine_cpu){.vcpu.regs = &regs[i]};
        regs[i] = (struct kvm_regs){.rip = HOOK_RIP};
        crew.member[i] = (struct member){.crew = &crew, .index = i, .cpu = &cpu[i]};
    }
    return 0;
}

static void stand_at_port(struct member *c, uint16_t port)
{
    c->arrived = true;
    c->exit = (struct vcpu_exit){.kind = EXIT_PIO_OUT, .at = port, .size = 1};
}

/* A CPU stands at the port while it is the guest's own; the turn of another one makes it ours. What
 * the first one stands at uses memory then that may be anybody's. */
static void test_a_port_that_becomes_ours(void **state)
{
    struct member *c = crew.member;

    (void)state;
    stand_at_port(&c[0], MODULE_PORT);
    stand_at_port(&c[1], MODULE_PORT + 1);
    stand_at_port(&c[2], MODULE_PORT);
    c[2].arrived = false; /* it is in the guest, and this is its exit before */
    c[2].runs = true;
    crew_look_again(&crew);
    assert_false(crew_needs_others(&c[0]));

    machine.kernel_code.module_hook = HOOK_RIP;
    crew_look_again(&crew);
    assert_true(crew_needs_others(&c[0]));
    assert_false(crew_may_be_served(&c[0])); /* another one runs */
    assert_false(c[1].for_all);
    assert_false(c[2].for_all);
}

/* Nothing that it stands at for all is taken from it. */
static void test_what_is_for_all_stays_so(void **state)
{
    struct member *c = crew.member;

    (void)state;
    stand_at_port(&c[0], 0x70);
    c[0].for_all = true;
    crew_look_again(&crew);
    assert_true(c[0].for_all);
}

/* It is stopped at any place once that was wanted for long: from the first time on, not the last.
 */
static void test_since_when_it_is_to_stop(void **state)
{
    struct member *c = crew.member;

    (void)state;
    cpu[0].state = CPU_HALTED; /* by an INIT */
    assert_int_equal(crew_stop_due(&c[0], 1000), 1000);
    assert_int_equal(crew_stop_due(&c[0], 2000), 1000);
    machine.ended = END_STOPPED;
    crew.ended_ns = 3000;
    assert_int_equal(crew_stop_due(&c[0], 4000), 3000);
    assert_int_equal(crew_stop_due(&c[1], 5000), 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_port_that_becomes_ours, setup),
        cmocka_unit_test_setup(test_what_is_for_all_stays_so, setup),
        cmocka_unit_test_setup(test_since_when_it_is_to_stop, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
