/* Who has the token, and for how long: vmm/machine/crew/crew_pages.c on a crew made by hand. Each
 * of its CPUs that wants something is served only where all others stand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vmm/machine/crew/crew_inside.h"
#include "vmm/machine/run_loop.h"

#define MS    1000000ull
#define START (100 * MS)

static struct machine machine;
static struct crew crew;

static int setup(void **state)
{
    (void)state;
    crew = (struct crew){.machine = &machine, .count = 3};
    for (unsigned i = 0; i < crew.count; i++)
        crew.member[i] = (struct member){.crew = &crew, .index = i, .runs = true};
    return 0;
}

static void come_to_fault(struct member *c, uint64_t now)
{
    c->runs = false;
    c->arrived = c->for_all = true;
    c->exit.kind = EXIT_FAULT;
    c->waits_ns = now;
}

static void run(struct member *c, uint64_t now)
{
    c->arrived = c->for_all = false;
    c->runs = true;
    c->entered_ns = now;
}

/* The first CPU gets the token, waits so long for its page, and runs. */
static void get_going(uint64_t waits_ns)
{
    come_to_fault(&crew.member[0], START);
    crew_pass_token(&crew, START);
    crew_pay_for_page(&crew.member[0], START + waits_ns);
    run(&crew.member[0], START + waits_ns);
}

static void test_who_needs_it(void **state)
{
    struct member *c = crew.member;

    (void)state;
    assert_true(crew_pass_token(&crew, START) == NEVER);
    assert_null(crew.token);
    come_to_fault(&c[2], START);
    come_to_fault(&c[1], START + 1);
    assert_true(crew_pass_token(&crew, START + 2) == NEVER);
    assert_ptr_equal(crew.token, &c[2]); /* it has waited longer */
    assert_true(crew_gives_way(&c[0]));

    /* Nobody stands in the way of the only one that does not rest. */
    setup(NULL);
    c[0].runs = c[1].runs = false;
    c[0].rests = c[1].rests = true;
    come_to_fault(&c[2], START);
    assert_null(crew_next_for_token(&crew));
    assert_true(crew_may_be_served(&c[2]));
}

static void test_quantum_follows_the_price_of_pages(void **state)
{
    (void)state;
    get_going(0);
    assert_int_equal(crew_quantum(&crew), 1 * MS);
    setup(NULL);
    get_going(3 * MS);
    assert_int_equal(crew_quantum(&crew), 60 * MS);
    /* Another page. */
    come_to_fault(&crew.member[0], START + 10 * MS);
    crew_pay_for_page(&crew.member[0], START + 12 * MS);
    assert_int_equal(crew_quantum(&crew), 100 * MS);
    setup(NULL);
    get_going(1000 * MS);
    assert_int_equal(crew_quantum(&crew), 250 * MS);
}

/* CPUs that run on for long without what they have lost are not held up by long quanta. */
static void test_quantum_where_little_is_shared(void **state)
{
    struct member *c = crew.member;
    uint64_t now = START;

    (void)state;
    get_going(3 * MS);
    for (unsigned change = 1; change <= 8; change++) {
        struct member *holder = crew.token, *next = holder == &c[0] ? &c[1] : &c[0];
        come_to_fault(next, now += 4 * MS);
        crew_needs_token_again(next, now);
        now += 250 * MS;
        crew_pass_token(&crew, now);
        assert_ptr_equal(crew.token, next);
        crew_pay_for_page(next, now += 3 * MS);
        run(next, now);
        now += 20 * MS; /* until the other one needs it again */
    }
    assert_int_equal(crew_quantum(&crew), 1 * MS);
    assert_int_equal(crew_what_comes_back(&crew), RETURN_AS_IT_WAS);

    /* Where it needs it again at once, they are. */
    for (unsigned change = 1; change <= 16; change++) {
        struct member *holder = crew.token, *next = holder == &c[0] ? &c[1] : &c[0];
        come_to_fault(next, now);
        crew_needs_token_again(next, now);
        now += 250 * MS;
        crew_pass_token(&crew, now);
        crew_pay_for_page(next, now += 3 * MS);
        run(next, now);
    }
    assert_int_equal(crew_quantum(&crew), 60 * MS);
    assert_int_equal(crew_what_comes_back(&crew), RETURN_ALL);
}

static void test_only_its_holder_pays(void **state)
{
    struct member *c = crew.member;

    (void)state;
    get_going(3 * MS);
    come_to_fault(&c[1], START + 5 * MS);
    crew_pay_for_page(&c[1], START + 7 * MS);
    assert_int_equal(crew_quantum(&crew), 60 * MS);
    /* What it has waited for the token is not what pages cost. */
    crew_give_up_token(&c[0]);
    crew_pass_token(&crew, START + 50 * MS);
    assert_ptr_equal(crew.token, &c[1]);
    crew_pay_for_page(&c[1], START + 52 * MS);
    assert_int_equal(crew_quantum(&crew), 40 * MS);
}

static void test_it_is_kept_for_a_quantum_of_the_guest(void **state)
{
    struct member *c = crew.member;
    const uint64_t ran = START + 2 * MS;

    (void)state;
    get_going(2 * MS);
    come_to_fault(&c[1], ran);
    assert_true(crew_pass_token(&crew, ran + 5 * MS) == ran + 40 * MS);
    assert_ptr_equal(crew.token, &c[0]);
    /* While it stands, no time of its quantum passes. */
    crew_spend_token(&c[0], 5 * MS);
    c[0].runs = false;
    assert_true(crew_pass_token(&crew, ran + 500 * MS) == NEVER);
    assert_ptr_equal(crew.token, &c[0]);
    run(&c[0], ran + 500 * MS);
    assert_true(crew_pass_token(&crew, ran + 500 * MS) == ran + 535 * MS);
    crew_pass_token(&crew, ran + 535 * MS);
    assert_ptr_equal(crew.token, &c[1]);
}

static void test_given_up(void **state)
{
    struct member *c = crew.member;

    (void)state;
    get_going(100 * MS);
    come_to_fault(&c[1], START + 101 * MS);
    crew_give_up_token(&c[1]); /* it has none */
    crew_pass_token(&crew, START + 102 * MS);
    assert_ptr_equal(crew.token, &c[0]);
    crew_give_up_token(&c[0]);
    crew_pass_token(&crew, START + 102 * MS);
    assert_ptr_equal(crew.token, &c[1]);

    /* Who rests needs it no more. */
    setup(NULL);
    get_going(100 * MS);
    come_to_fault(&c[1], START + 101 * MS);
    c[0].runs = false;
    c[0].rests = true;
    crew_pass_token(&crew, START + 102 * MS);
    assert_ptr_equal(crew.token, &c[1]);
}

static void test_random_quanta(void **state)
{
    uint64_t quantum[2][50], least = NEVER, most = 0;

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        setup(NULL);
        crew.random = 7;
        for (unsigned i = 0; i < 50; i++) {
            struct member *const next = &crew.member[i % 2], *const last = &crew.member[1 - i % 2];
            run(last, START);
            crew_give_up_token(last);
            come_to_fault(next, START);
            crew_pass_token(&crew, START);
            assert_ptr_equal(crew.token, next);
            crew_pay_for_page(next, START + 200 * MS); /* does not matter */
            quantum[round][i] = crew_quantum(&crew);
            least = earlier(least, quantum[round][i]);
            most = quantum[round][i] > most ? quantum[round][i] : most;
        }
    }
    assert_memory_equal(quantum[0], quantum[1], sizeof quantum[0]);
    assert_in_range(least, 1 * MS, 5 * MS);
    assert_in_range(most, 16 * MS, 20 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_who_needs_it, setup),
        cmocka_unit_test_setup(test_quantum_follows_the_price_of_pages, setup),
        cmocka_unit_test_setup(test_quantum_where_little_is_shared, setup),
        cmocka_unit_test_setup(test_only_its_holder_pays, setup),
        cmocka_unit_test_setup(test_it_is_kept_for_a_quantum_of_the_guest, setup),
        cmocka_unit_test_setup(test_given_up, setup),
        cmocka_unit_test_setup(test_random_quanta, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
