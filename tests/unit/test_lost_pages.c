/* Pages that come back together: the list of them, and vmm/views.c on real ownership, without VMs.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vmm/views.h"

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
    v.lost = lost_pages_create(memory.size / PAGE_BYTES);
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
static void come(unsigned vcpu, uint64_t page, enum page_access access)
{
    const struct page_fault fault = {page, access};

    assert_true(views_give(&v, vcpu, 0, &fault));
}

static enum page_access has(unsigned vcpu, uint64_t page)
{
    return ownership_table(v.ownership, vcpu)[page];
}

static unsigned regain(unsigned vcpu)
{
    struct page_fault given[VIEWS_GIVEN_MAX];

    assert_true(views_can_regain(&v, vcpu));
    const unsigned count = views_regain(&v, vcpu, given);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(given[i].access, ACCESS_WRITE);
        assert_int_equal(has(vcpu, given[i].page), ACCESS_WRITE);
        for (unsigned other = 0; other < v.count; other++)
            assert_true(other == vcpu || has(other, given[i].page) == ACCESS_NONE);
    }
    assert_false(views_can_regain(&v, vcpu)); /* once for each page that it comes to */
    return count;
}

static void test_they_come_back_together(void **state)
{
    (void)state;
    for (uint64_t page = 1; page <= 4; page++)
        come(0, page, ACCESS_WRITE);
    assert_false(views_can_regain(&v, 0)); /* nobody had them */
    for (uint64_t page = 1; page <= 4; page++)
        come(1, page, ACCESS_WRITE);
    come(0, 3, ACCESS_READ);
    assert_int_equal(regain(0), 4);
    for (uint64_t page = 1; page <= 4; page++)
        assert_int_equal(has(0, page), ACCESS_WRITE); /* the one to be read, too */
    /* And there again. */
    come(1, 1, ACCESS_WRITE);
    assert_int_equal(regain(1), 3);
}

static void test_only_what_that_one_still_has(void **state)
{
    (void)state;
    for (uint64_t page = 1; page <= 4; page++)
        come(0, page, ACCESS_WRITE);
    for (uint64_t page = 1; page <= 4; page++)
        come(1, page, ACCESS_WRITE);
    come(2, 1, ACCESS_WRITE); /* a third one's by now */
    come(2, 2, ACCESS_READ);  /* and this is read by it */
    come(0, 3, ACCESS_WRITE);
    assert_int_equal(regain(0), 1);
    assert_int_equal(has(0, 4), ACCESS_WRITE);
    assert_int_equal(has(2, 1), ACCESS_WRITE);
    assert_int_equal(has(1, 2), ACCESS_READ);
    assert_int_equal(has(2, 2), ACCESS_READ);
}

static void test_a_page_of_readers_brings_nothing(void **state)
{
    (void)state;
    come(0, 1, ACCESS_WRITE);
    come(0, 2, ACCESS_WRITE);
    come(1, 1, ACCESS_WRITE);
    come(1, 2, ACCESS_READ);
    come(0, 2, ACCESS_WRITE); /* who has it does not write it: it may not be done with page 1 */
    assert_false(views_can_regain(&v, 0));
    assert_int_equal(has(1, 1), ACCESS_WRITE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_noted),
        cmocka_unit_test(test_a_guess_must_be_confirmed),
        cmocka_unit_test_setup_teardown(test_they_come_back_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_what_that_one_still_has, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_page_of_readers_brings_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
