/* Page tables made by hand, of a machine with two vCPUs: which pages are everybody's, while the
 * guest makes tables, frees them, and uses their pages for something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mmu/shared_tables.h"
#include "mmu/walk.h"

#define TABLE (PTE_PRESENT | PTE_WRITE | PTE_USER)
#define LAST  511

/* Pages: a process' tables, the kernel's, and those of another process. */
enum { ROOT = 1, POINTERS, DIRECTORY, LEAVES, KERNEL, MORE, OTHER_ROOT, OTHER, DATA };

static struct guest_memory memory;
static struct ownership *o;
static struct shared_tables *t;

static uint64_t *entry(unsigned page, unsigned i)
{
    return (uint64_t *)(memory.host + (uint64_t)page * PAGE_BYTES) + i;
}

static void lead(unsigned from, unsigned i, unsigned to)
{
    *entry(from, i) = (uint64_t)to * PAGE_BYTES | TABLE;
}

static int setup(void **state)
{
    struct err e;

    (void)state;
    if (guest_memory_create(&memory, MEMORY_MIN, &e) < 0)
        fail_msg("%s", e.text);
    o = ownership_create(&memory, 2, &e);
    if (!o) {
        print_message("%s\n", e.text);
        skip();
    }
    t = shared_tables_create(&memory, o);
    assert_non_null(t);
    lead(ROOT, 0, POINTERS);
    lead(POINTERS, 7, DIRECTORY);
    lead(DIRECTORY, 3, LEAVES);
    *entry(DIRECTORY, 4) = (uint64_t)DATA * PAGE_BYTES | TABLE | PTE_LARGE;
    *entry(LEAVES, 9) = (uint64_t)DATA * PAGE_BYTES | TABLE;
    lead(ROOT, LAST, KERNEL);
    lead(OTHER_ROOT, LAST, KERNEL);
    shared_tables_add(t, (uint64_t)ROOT * PAGE_BYTES | 0x18, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shared_tables_destroy(t);
    ownership_destroy(o);
    guest_memory_destroy(&memory);
    return 0;
}

/* Which pages up to DATA are everybody's, a bit each. */
static unsigned shared(void)
{
    unsigned pages = 0;

    for (unsigned page = 0; page <= DATA; page++)
        pages |= (unsigned)ownership_is_shared(o, page) << page;
    return pages;
}

static void refresh(unsigned root)
{
    const uint64_t in_use[] = {(uint64_t)root * PAGE_BYTES};

    shared_tables_refresh(t, in_use, 1);
}

#define BIT(page) (1u << (page))
#define FIRST     (BIT(ROOT) | BIT(POINTERS) | BIT(DIRECTORY) | BIT(LEAVES) | BIT(KERNEL))

static void what_lies_under_a_root(void **state)
{
    (void)state;
    assert_int_equal(shared(), FIRST);
    assert_true(shared_tables_has(t, (uint64_t)ROOT * PAGE_BYTES));
    assert_false(shared_tables_has(t, (uint64_t)KERNEL * PAGE_BYTES)); /* no root */
    assert_false(shared_tables_has(t, (uint64_t)OTHER_ROOT * PAGE_BYTES));
    assert_false(shared_tables_has(t, 1ull << 40));
    shared_tables_add(t, 1ull << 40, true);
    refresh(ROOT);
    assert_int_equal(shared(), FIRST);
}

static void tables_come_and_go(void **state)
{
    (void)state;
    lead(POINTERS, 8, MORE);
    assert_int_equal(shared(), FIRST); /* until it is looked */
    refresh(ROOT);
    assert_int_equal(shared(), FIRST | BIT(MORE));
    /* A table that is led to twice stays as long as one of these does. */
    lead(POINTERS, 9, DIRECTORY);
    *entry(POINTERS, 8) = 0;
    *entry(POINTERS, 7) = 0;
    refresh(ROOT);
    assert_int_equal(shared(), FIRST);
    *entry(POINTERS, 9) |= PTE_ACCESSED | PTE_DIRTY;
    refresh(ROOT);
    assert_int_equal(shared(), FIRST);
    *entry(POINTERS, 9) = 0;
    refresh(ROOT);
    assert_int_equal(shared(), FIRST & ~(BIT(DIRECTORY) | BIT(LEAVES)));
    assert_int_equal(ownership_table(o, 0)[LEAVES], ACCESS_NONE);
}

/* What was a table is full of anything before it is looked through again. */
static void a_table_that_became_data(void **state)
{
    (void)state;
    *entry(POINTERS, 7) = 0;
    for (unsigned i = 0; i < 512; i++)
        lead(DIRECTORY, i, DATA);
    refresh(ROOT);
    assert_int_equal(shared(), FIRST & ~(BIT(DIRECTORY) | BIT(LEAVES)));
    /* Tables that lead to themselves come to an end, too. */
    lead(POINTERS, 1, POINTERS);
    lead(ROOT, 1, ROOT);
    refresh(ROOT);
    assert_true(shared() & BIT(POINTERS));
}

static void a_root_that_sleeps_stays_one(void **state)
{
    (void)state;
    lead(OTHER_ROOT, 0, OTHER);
    shared_tables_add(t, (uint64_t)OTHER_ROOT * PAGE_BYTES, false);
    refresh(OTHER_ROOT);
    assert_int_equal(shared(), FIRST | BIT(OTHER_ROOT)); /* the tables of user space are not */
    *entry(ROOT, LAST) |= PTE_ACCESSED;
    lead(OTHER_ROOT, LAST - 1, MORE);
    lead(OTHER_ROOT, 1, OTHER);
    lead(ROOT, LAST - 1, MORE);
    refresh(OTHER_ROOT);
    assert_int_equal(shared(), FIRST | BIT(OTHER_ROOT) | BIT(MORE));
    /* A number, where the user's tables are. */
    *entry(ROOT, 20) = 1;
    refresh(OTHER_ROOT);
    assert_int_equal(shared(), BIT(KERNEL) | BIT(MORE) | BIT(OTHER_ROOT));
    assert_false(shared_tables_has(t, (uint64_t)ROOT * PAGE_BYTES));
    assert_true(shared_tables_has(t, (uint64_t)OTHER_ROOT * PAGE_BYTES));
}

static void a_root_that_was_cleared_is_none(void **state)
{
    (void)state;
    shared_tables_add(t, (uint64_t)OTHER_ROOT * PAGE_BYTES, false);
    for (unsigned i = 0; i < 512; i++)
        *entry(OTHER_ROOT, i) = 0;
    refresh(OTHER_ROOT); /* a vCPU has it: so it stays, and so does one that has not changed */
    assert_int_equal(shared(), FIRST | BIT(OTHER_ROOT));
    *entry(OTHER_ROOT, 400) = 0x10;
    refresh(ROOT);
    assert_int_equal(shared(), FIRST);
    shared_tables_add(t, (uint64_t)OTHER_ROOT * PAGE_BYTES, false);
    assert_int_equal(shared(), FIRST | BIT(OTHER_ROOT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_lies_under_a_root, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_come_and_go, setup, teardown),
        cmocka_unit_test_setup_teardown(a_table_that_became_data, setup, teardown),
        cmocka_unit_test_setup_teardown(a_root_that_sleeps_stays_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_root_that_was_cleared_is_none, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
