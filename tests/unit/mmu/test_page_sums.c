/* mmu/page_sums.c: two memories, of which one is known by its sums alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "mmu/digest.h"
#include "tests/unit/random.h"

#define PAGES     ((3ull << 30) / PAGE_BYTES + 512) /* the last 512 of them lie above 4 GiB */
#define NAMED_MAX (PAGE_SUM_ROWS * PAGE_SUM_CELLS)

static struct guest_memory m;
static uint64_t seed = RANDOM_SEED;

static int make(void **state)
{
    struct err e;

    (void)state;
    if (guest_memory_create(&m, PAGES * PAGE_BYTES, &e) < 0)
        return -1;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t *page = (uint64_t *)(void *)(m.host + random_next(&seed) % PAGES * PAGE_BYTES);
        for (unsigned at = 0; at < 512; at++)
            page[at] = random_next(&seed);
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    guest_memory_destroy(&m);
    return 0;
}

static uint64_t *word(uint64_t page, unsigned at)
{
    return (uint64_t *)(void *)(m.host + page * PAGE_BYTES) + at;
}

/* The sums as they are in a recording. */
static struct page_sums sums(void)
{
    struct page_sums made, read;
    struct bytes stored = {0};

    memory_digest(&m, &made);
    page_sums_encode(&stored, &made);
    assert_int_equal(stored.len, PAGE_SUMS_BYTES);
    struct cursor in = cursor_of(stored.data, stored.len);
    page_sums_decode(&in, &read);
    assert_false(in.bad);
    assert_memory_equal(&made, &read, sizeof made);
    bytes_free(&stored);
    return read;
}

static void test_names_a_word(void **state)
{
    const uint64_t pages[] = {0, 1, 77, 4711, PAGES - 512, PAGES - 1};
    struct page_difference d[NAMED_MAX];
    const struct page_sums expected = sums();

    (void)state;
    for (unsigned i = 0; i < 6 * 512; i += 37) {
        const uint64_t page = pages[i / 512], was = *word(page, i % 512);
        bool all;
        *word(page, i % 512) = was ^ 1ull << random_next(&seed) % 64;
        const struct page_sums got = sums();
        assert_int_equal(page_sums_compare(&expected, &got, &m, d, NAMED_MAX, &all), 1);
        assert_true(all && d[0].one_word);
        assert_int_equal(d[0].gpa, guest_memory_gpa(&m, page * PAGE_BYTES));
        assert_int_equal(d[0].offset, i % 512 * 8);
        assert_int_equal(d[0].expected, was);
        assert_int_equal(d[0].got, *word(page, i % 512));
        *word(page, i % 512) = was;
    }
}

/* Pages at random, or next to each other: up to 40 are named but for two that share their cells;
 * whatever is named, is right. */
static void test_names_pages(void **state)
{
    struct page_difference d[NAMED_MAX];
    const struct page_sums expected = sums();

    (void)state;
    for (unsigned round = 0; round < 60; round++) {
        const unsigned count = round * 2;
        uint64_t page[120];
        bool all;
        for (unsigned i = 0; i < count; i++) {
            page[i] = round % 2 ? 1000 + i : random_next(&seed) % PAGES;
            *word(page[i], 5) ^= i + 1;
            *word(page[i], 511) ^= i + 1;
        }
        const struct page_sums got = sums();
        const unsigned named = page_sums_compare(&expected, &got, &m, d, NAMED_MAX, &all);
        assert_true(named == count ? all : !all);
        assert_true(named <= count && (count > 40 || named + 2 >= count));
        for (unsigned i = 0; i < named; i++) {
            unsigned j = 0;
            while (j < count && guest_memory_gpa(&m, page[j] * PAGE_BYTES) != d[i].gpa)
                j++;
            assert_true(j < count && (!i || d[i].gpa > d[i - 1].gpa));
            assert_false(d[i].one_word);
        }
        for (unsigned i = 0; i < count; i++) {
            *word(page[i], 5) ^= i + 1;
            *word(page[i], 511) ^= i + 1;
        }
    }
}

static void test_equal_memories(void **state)
{
    struct page_difference d[NAMED_MAX];
    const struct page_sums expected = sums();
    bool all;

    (void)state;
    assert_int_equal(page_sums_compare(&expected, &expected, &m, d, NAMED_MAX, &all), 0);
    assert_true(all);
}

/* A recording may hold anything. */
static void test_hostile_sums(void **state)
{
    struct page_difference d[NAMED_MAX];
    const struct page_sums got = sums();
    struct page_sums expected;
    bool all;

    (void)state;
    for (unsigned round = 0; round < rounds(1000); round++) {
        uint64_t *at = (uint64_t *)(void *)&expected;
        for (unsigned i = 0; i < sizeof expected / 8; i++)
            at[i] = random_next(&seed) >> random_next(&seed) % 64;
        assert_true(page_sums_compare(&expected, &got, &m, d, NAMED_MAX, &all) <= NAMED_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_a_word),
        cmocka_unit_test(test_names_pages),
        cmocka_unit_test(test_equal_memories),
        cmocka_unit_test(test_hostile_sums),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
