/* Pages that come back together: the list of them, and vmm/kvm/views.c on real ownership, without
 * VMs.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vmm/kvm/views.h"

#define PAGES 64u

static void test_what_is_noted(void **state)
{
    struct lost_pages *l = lost_pages_create(PAGES);
    uint64_t page[LOST_PAGES_MAX];

    (void)state;
    assert_non_null(l);
    assert_false(lost_pages_any(l, 0, 1));
    lost_pages_note(l, 0, 1, 5);
    lost_pages_note(l, 0, 1, 9);
    lost_pages_note(l, 0, 1, 5); /* once is enough */
    lost_pages_note(l, 0, 2, 6);
    assert_true(lost_pages_any(l, 0, 1));
    assert_false(lost_pages_any(l, 1, 0));
    assert_int_equal(lost_pages_take(l, 0, 1, page), 2);
    assert_int_equal(page[0], 5);
    assert_int_equal(page[1], 9);
    assert_false(lost_pages_any(l, 0, 1));
    assert_int_equal(lost_pages_take(l, 0, 2, page), 1);

    /* The last ones count. */
    for (uint64_t i = 0; i < LOST_PAGES_MAX + 3; i++)
        lost_pages_note(l, 3, 1, i);
    assert_int_equal(lost_pages_take(l, 3, 1, page), LOST_PAGES_MAX);
    assert_int_equal(page[0], 3);
    assert_int_equal(page[LOST_PAGES_MAX - 1], LOST_PAGES_MAX + 2);
    lost_pages_destroy(l);
}

static void test_a_guess_must_be_confirmed(void **state)
{
    struct lost_pages *l = lost_pages_create(PAGES);
    uint64_t page[LOST_PAGES_MAX];

    (void)state;
    for (unsigned i = 0; i < GUESSES_MAX; i++) {
        lost_pages_note(l, 0, 1, 5);
        assert_int_equal(lost_pages_take(l, 0, 1, page), 1);
        lost_pages_guessed(l, 0, 5);
    }
    lost_pages_note(l, 0, 1, 5);
    assert_false(lost_pages_any(l, 0, 1));
    lost_pages_asked(l, 1, 5); /* another one */
    lost_pages_note(l, 0, 1, 5);
    assert_false(lost_pages_any(l, 0, 1));
    lost_pages_asked(l, 0, 5);
    lost_pages_note(l, 0, 1, 5);
    assert_true(lost_pages_any(l, 0, 1));
    lost_pages_destroy(l);
}

/* ---- on pages ---- */

static struct guest_memory memory;
static struct views v;

static int setup(void **state)
{
    struct err e;

    (void)state;
    if (guest_memory_create(&memory, MEMORY_MIN, &e) < 0)
        fail_msg("%s", e.text);
    v = (struct views){.count = 3};
    v.ownership = ownership_create(&memory, 3, &e);
    if (!v.ownership) {
        print_message("%s\n", e.text);
        skip();
    }
    v.pages = memory.size / PAGE_BYTES;
    v.lost = lost_pages_create(v.pages);
    assert_non_null(v.lost);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lost_pages_destroy(v.lost);
    ownership_destroy(v.ownership);
    guest_memory_destroy(&memory);
    return 0;
}

/* A vCPU comes to a page. */
static unsigned come(unsigned vcpu, uint64_t page, enum page_access access)
{
    const struct page_fault fault = {page, access};
    struct page_fault given[VIEWS_GIVEN_MAX];
    const unsigned count = views_give(&v, vcpu, 0, &fault, given);

    assert_in_range(count, 1, VIEWS_GIVEN_MAX);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(given[i].page, page + i);
        assert_int_equal(given[i].access, ownership_table(v.ownership, vcpu)[page + i]);
    }
    return count;
}

static enum page_access has(unsigned vcpu, uint64_t page)
{
    return ownership_table(v.ownership, vcpu)[page];
}

static unsigned regain(unsigned vcpu, bool all)
{
    struct page_fault given[VIEWS_GIVEN_MAX];

    assert_true(views_can_regain(&v, vcpu, all));
    const unsigned count = views_regain(&v, vcpu, all, given);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(given[i].access, ACCESS_WRITE);
        assert_int_equal(has(vcpu, given[i].page), ACCESS_WRITE);
        for (unsigned other = 0; other < v.count; other++)
            assert_true(other == vcpu || has(other, given[i].page) == ACCESS_NONE);
    }
    assert_false(views_can_regain(&v, vcpu, true)); /* once for each page that it comes to */
    return count;
}

static void test_they_come_back_together(void **state)
{
    (void)state;
    for (uint64_t page = 2; page <= 8; page += 2)
        come(0, page, ACCESS_WRITE);
    assert_false(views_can_regain(&v, 0, true)); /* nobody had them */
    for (uint64_t page = 2; page <= 8; page += 2)
        come(1, page, ACCESS_WRITE);
    come(0, 6, ACCESS_READ);
    assert_int_equal(regain(0, true), 4);
    for (uint64_t page = 2; page <= 8; page += 2)
        assert_int_equal(has(0, page), ACCESS_WRITE); /* the one to be read, too */
    /* And there again. */
    come(1, 2, ACCESS_WRITE);
    assert_int_equal(regain(1, true), 3);
}

static void test_only_what_that_one_still_has(void **state)
{
    (void)state;
    for (uint64_t page = 2; page <= 8; page += 2)
        come(0, page, ACCESS_WRITE);
    for (uint64_t page = 2; page <= 8; page += 2)
        come(1, page, ACCESS_WRITE);
    come(2, 2, ACCESS_WRITE); /* a third one's by now */
    come(2, 4, ACCESS_READ);  /* and this is read by it */
    come(0, 6, ACCESS_WRITE);
    assert_int_equal(regain(0, true), 1);
    assert_int_equal(has(0, 8), ACCESS_WRITE);
    assert_int_equal(has(2, 2), ACCESS_WRITE);
    assert_int_equal(has(1, 4), ACCESS_READ);
    assert_int_equal(has(2, 4), ACCESS_READ);
}

static void test_a_page_of_readers_brings_nothing(void **state)
{
    (void)state;
    come(0, 1, ACCESS_WRITE);
    come(0, 2, ACCESS_WRITE);
    come(1, 1, ACCESS_WRITE);
    come(1, 2, ACCESS_READ);
    come(0, 2, ACCESS_WRITE); /* who has it does not write it: it may not be done with page 1 */
    assert_false(views_can_regain(&v, 0, true));
    assert_int_equal(has(1, 1), ACCESS_WRITE);
}

static void test_a_page_alone_comes_back_as_it_was(void **state)
{
    (void)state;
    come(0, 1, ACCESS_READ); /* nobody has it */
    assert_int_equal(has(0, 1), ACCESS_WRITE);
    come(0, 2, ACCESS_WRITE);
    come(1, 1, ACCESS_READ);
    assert_false(views_can_regain(&v, 1, false)); /* it never could write it */
    assert_int_equal(has(0, 1), ACCESS_READ);
    come(1, 1, ACCESS_WRITE);
    come(1, 2, ACCESS_WRITE);
    come(0, 1, ACCESS_READ);
    assert_int_equal(has(0, 1), ACCESS_READ);
    assert_int_equal(regain(0, false), 1);
    assert_int_equal(has(0, 1), ACCESS_WRITE);
    assert_int_equal(has(1, 2), ACCESS_WRITE);
    come(0, 2, ACCESS_WRITE); /* nothing is left of it to come back */
    assert_false(views_can_regain(&v, 0, false));
}

static void test_pages_one_after_another(void **state)
{
    const uint64_t pages = memory.size / PAGE_BYTES;

    (void)state;
    come(1, 110, ACCESS_WRITE);
    assert_int_equal(come(0, 100, ACCESS_READ), 1);
    assert_int_equal(come(0, 101, ACCESS_WRITE), 2);
    assert_int_equal(come(0, 103, ACCESS_WRITE), 4);
    assert_int_equal(come(0, 107, ACCESS_WRITE), 3); /* up to what another one has */
    assert_int_equal(has(1, 110), ACCESS_WRITE);
    assert_int_equal(has(1, 107), ACCESS_NONE);
    assert_int_equal(come(0, 200, ACCESS_WRITE), 1); /* elsewhere */
    assert_int_equal(come(1, 201, ACCESS_WRITE), 1); /* another one */
    unsigned expected = 1;
    for (uint64_t page = 300; page < 400; page += expected, expected *= 2) {
        expected = expected > VIEWS_GIVEN_MAX ? VIEWS_GIVEN_MAX : expected;
        assert_int_equal(come(2, page, ACCESS_WRITE), expected);
    }
    come(0, pages - 2, ACCESS_WRITE);
    assert_int_equal(come(0, pages - 1, ACCESS_WRITE), 1); /* the last one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_noted),
        cmocka_unit_test(test_a_guess_must_be_confirmed),
        cmocka_unit_test_setup_teardown(test_they_come_back_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_what_that_one_still_has, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_page_alone_comes_back_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_one_after_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_page_of_readers_brings_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
