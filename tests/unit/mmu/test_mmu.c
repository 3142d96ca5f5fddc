/* mmu/walk.c and mmu/digest.c on guest memory with page tables made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "mmu/digest.h"
#include "mmu/walk.h"
#include "tests/unit/random.h"

#define CR3 0x1000u

static struct guest_memory m;

static uint64_t *entry(uint64_t table, unsigned index)
{
    return guest_memory_at(&m, table + index * 8, 8);
}

/* 0x400000 -> GPA 0x10000 (4 KiB, user, read-only, NX); 2 MiB page at 0xffffffff80000000 ->
 * 0x200000 */
static int make(void **state)
{
    struct err e;
    const uint64_t rwu = PTE_PRESENT | PTE_WRITE | PTE_USER;

    (void)state;
    if (guest_memory_create(&m, 16 << 20, &e) < 0)
        return -1;
    *entry(CR3, 0) = 0x2000 | rwu;
    *entry(0x2000, 0) = 0x3000 | rwu;
    *entry(0x3000, 2) = 0x4000 | rwu;
    *entry(0x4000, 0) = 0x10000 | PTE_PRESENT | PTE_USER | PTE_NX;
    *entry(0x4000, 1) = 0x11000 | rwu;
    *entry(CR3, 511) = 0x5000 | PTE_PRESENT | PTE_WRITE;
    *entry(0x5000, 510) = 0x6000 | PTE_PRESENT | PTE_WRITE;
    *entry(0x6000, 0) = 0x200000 | PTE_PRESENT | PTE_WRITE | PTE_LARGE;
    *entry(0x6000, 1) = 0xff00000000 | PTE_PRESENT | PTE_LARGE; /* beyond RAM */
    return 0;
}

static int drop(void **state)
{
    (void)state;
    guest_memory_destroy(&m);
    return 0;
}

static void test_walk(void **state)
{
    struct translation t;

    (void)state;
    assert_true(walk(&m, CR3, 0x400123, &t));
    assert_int_equal(t.gpa, 0x10123);
    assert_true(t.user && !t.writable && !t.executable);
    assert_int_equal(t.page_size, 4096);
    assert_true(walk(&m, CR3, 0x401000, &t));
    assert_true(t.user && t.writable && t.executable);
    assert_true(walk(&m, CR3, 0xffffffff80123456, &t));
    assert_int_equal(t.gpa, 0x323456);
    assert_int_equal(t.page_size, 2 << 20);
    assert_true(!t.user);
    assert_false(walk(&m, CR3, 0x402000, &t));
    assert_false(walk(&m, CR3, 0x0000800000000000, &t)); /* not canonical */
    assert_false(walk(&m, 0x7ffffffff000, 0x400000, &t));
}

static void test_user_can_write_by_any_mapping(void **state)
{
    (void)state;
    assert_true(walk_user_can_write(&m, CR3, 0x11abc));
    assert_false(walk_user_can_write(&m, CR3, 0x10000));
    assert_false(walk_user_can_write(&m, CR3, 0x200000)); /* the kernel alone */
    *entry(0x4000, 7) = 0x10000 | PTE_PRESENT | PTE_WRITE | PTE_USER;
    assert_true(walk_user_can_write(&m, CR3, 0x10000));
    *entry(0x3000, 2) &= ~PTE_WRITE; /* each level has to allow it */
    assert_false(walk_user_can_write(&m, CR3, 0x10000));
    /* More tables than are looked into: it may be in the others. */
    for (unsigned i = 0; i < 512; i++) {
        *entry(0x2000, i) = 0x3000 | PTE_PRESENT | PTE_WRITE | PTE_USER;
        *entry(0x3000, i) = 0x7000 | PTE_PRESENT | PTE_WRITE | PTE_USER;
    }
    assert_true(walk_user_can_write(&m, CR3, 0x10000));
}

/* As where a vCPU of a crew walks a root that another one owns. */
static void test_touch_with_a_lent_root(void **state)
{
    static uint8_t readable[MEMORY_MIN / PAGE_BYTES];
    struct guest_memory mine = m;
    struct translation t;

    (void)state;
    memset(readable, 1, sizeof readable);
    readable[CR3 / PAGE_BYTES] = 0;
    mine.readable = readable;
    assert_true(walk(&mine, CR3, 0x401000, &t) && !t.accessed);
    walk_touch(&mine, CR3, 0x401000);
    assert_true(walk(&mine, CR3, 0x401000, &t) && t.accessed);
    assert_true(*entry(CR3, 0) & PTE_ACCESSED);
    /* Of the others it has what it owns: nothing is there, and nothing happens. */
    readable[0x4000 / PAGE_BYTES] = 0;
    walk_touch(&mine, CR3, 0x400000);
    assert_false(*entry(0x4000, 0) & PTE_ACCESSED);
}

static void test_read_stops_at_what_is_not_mapped(void **state)
{
    uint8_t data[12288];

    (void)state;
    memset(guest_memory_at(&m, 0x10000, 8192), 0xab, 8192);
    assert_int_equal(walk_read(&m, CR3, 0x400800, data, sizeof data), 8192 - 0x800);
    assert_int_equal(data[8192 - 0x801], 0xab);
    assert_int_equal(walk_read(&m, CR3, 0xffffffff80200000, data, 1), 0);
}

static void test_walk_survives_any_tables(void **state)
{
    uint64_t x = 1;

    (void)state;
    for (unsigned round = 0; round < rounds(20000); round++) {
        struct translation t;
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        *entry(CR3 + (x >> 60 & 3) * 4096, (unsigned)(x >> 40 & 511)) = x * 0x9e3779b97f4a7c15ull;
        if (walk(&m, CR3, x, &t))
            assert_true(t.page_size == 4096 || t.page_size == 2 << 20 || t.page_size == 1 << 30);
    }
}

static void test_digest_is_of_contents_only(void **state)
{
    uint64_t before = memory_digest(&m, NULL);
    volatile uint8_t *untouched = guest_memory_at(&m, 0x800000, 4096);

    (void)state;
    assert_int_equal(untouched[0], 0); /* allocates the page, changes nothing */
    assert_int_equal(memory_digest(&m, NULL), before);
    untouched[7] = 1;
    assert_int_not_equal(memory_digest(&m, NULL), before);
    untouched[7] = 0;
    assert_int_equal(memory_digest(&m, NULL), before);
}

static void test_digest_depends_on_the_place(void **state)
{
    static const uint64_t page[512] = {1, 2, 3};

    (void)state;
    assert_int_not_equal(page_digest(&m, page, 1), page_digest(&m, page, 2));
}

/* Facts of recordings: these values are in files. */
static void test_digests_are_what_files_have(void **state)
{
    const struct guest_memory now = {.digest_by_xxh3 = false}, old = {.digest_by_xxh3 = true};
    static const uint64_t page[512] = {1, 2, 3}, zero[512];

    (void)state;
    assert_int_equal(page_digest(&now, page, 5), 0x08ea73e47f1de321);
    assert_int_equal(page_digest(&old, page, 5), 0xeccd204e354123db);
    assert_int_equal(page_digest(&now, zero, 5), 0);
    assert_int_equal(page_digest(&old, zero, 5), 0);
}

static void test_accessed_and_dirty_bits_do_not_count(void **state)
{
    uint64_t before = memory_digest(&m, NULL);

    (void)state;
    *entry(0x4000, 0) |= PTE_ACCESSED | PTE_DIRTY;
    *entry(CR3, 511) |= PTE_ACCESSED;
    assert_int_equal(memory_digest(&m, NULL), before);
    *entry(0x4000, 0) ^= PTE_WRITE; /* any other bit does */
    assert_int_not_equal(memory_digest(&m, NULL), before);
}

static void test_bits_of_data_count(void **state)
{
    uint64_t data[512] = {0x123456789abcdef1, 0x41}; /* no page table: reserved bits are set */
    uint64_t before = page_digest(&m, data, 0);

    (void)state;
    data[1] |= PTE_ACCESSED;
    assert_int_not_equal(page_digest(&m, data, 0), before);
}

static void test_find_user(void **state)
{
    uint64_t va;

    (void)state;
    assert_true(walk_find(&m, CR3, 3, 0x10000, &va));
    assert_int_equal(va, 0x400000);
    assert_true(walk_find(&m, CR3, 3, 0x11abc, &va));
    assert_int_equal(va, 0x401abc);
    /* The kernel's only, nowhere at all, and tables that are none or lead to themselves. */
    assert_false(walk_find(&m, CR3, 3, 0x200000, &va));
    assert_false(walk_find(&m, CR3, 3, 0x12000, &va));
    assert_false(walk_find(&m, 1ull << 40, 3, 0x10000, &va));
    *entry(CR3, 1) = CR3 | PTE_PRESENT | PTE_USER;
    *entry(CR3, 2) = 0xff00000000 | PTE_PRESENT | PTE_USER;
    assert_false(walk_find(&m, CR3, 3, 0x12000, &va));
    assert_true(walk_find(&m, CR3, 3, 0x11000, &va));
    assert_int_equal(va, 0x401000);
    *entry(CR3, 1) = *entry(CR3, 2) = 0;
    /* The kernel may use all of it. */
    assert_true(walk_find(&m, CR3, 0, 0x200008, &va));
    assert_int_equal(va, 0xffffffff80000008);
    assert_true(walk_find(&m, CR3, 0, 0x11000, &va));
    assert_int_equal(va, 0x401000);
    assert_false(walk_find(&m, CR3, 0, 0x12000, &va));
}

static void test_kernel_tables(void **state)
{
    (void)state;
    assert_true(walk_is_kernel_table(&m, CR3 | 0x18, 0x5000));
    assert_true(walk_is_kernel_table(&m, CR3, 0x6000));
    /* Neither the root nor large pages, nor what the lower half has. */
    assert_false(walk_is_kernel_table(&m, CR3, CR3));
    assert_false(walk_is_kernel_table(&m, CR3, 0x200000));
    assert_false(walk_is_kernel_table(&m, CR3, 0x2000));
    assert_false(walk_is_kernel_table(&m, CR3, 0x4000));
    assert_false(walk_is_kernel_table(&m, 1ull << 40, 0x5000));
    *entry(0x6000, 7) = 0x7000 | PTE_PRESENT;
    assert_true(walk_is_kernel_table(&m, CR3, 0x7000));
    *entry(0x7000, 0) = 0x8000 | PTE_PRESENT; /* a page */
    assert_false(walk_is_kernel_table(&m, CR3, 0x8000));
    *entry(0x6000, 7) = *entry(0x7000, 0) = 0;
    assert_false(walk_is_kernel_table(&m, CR3, 0x7000));
    /* Tables that lead to themselves, and out of memory. */
    *entry(CR3, 300) = CR3 | PTE_PRESENT;
    *entry(CR3, 301) = 0xff00000000 | PTE_PRESENT;
    assert_true(walk_is_kernel_table(&m, CR3, CR3));
    assert_false(walk_is_kernel_table(&m, CR3, 0x8000));
    *entry(CR3, 300) = *entry(CR3, 301) = 0;
}

/* A page with a counter looks like a page table whenever it is odd: so tables are those that are
 * used. */
static void test_leads_to(void **state)
{
    (void)state;
    /* A small page, a large one of which a part is wanted, and what lies before and behind. */
    assert_true(walk_leads_to(&m, CR3, 0x10000, 0x1000));
    assert_true(walk_leads_to(&m, CR3, 0x11800, 8));
    assert_false(walk_leads_to(&m, CR3, 0x12000, 0x10000));
    assert_false(walk_leads_to(&m, CR3, 0xf000, 0x1000));
    assert_true(walk_leads_to(&m, CR3, 0xf000, 0x1001));
    assert_true(walk_leads_to(&m, CR3, 0x3ff000, 0x1000));
    assert_false(walk_leads_to(&m, CR3, 0x400000, 0x1000));
    assert_true(walk_leads_to(&m, CR3, 0xff00100000, 0x1000)); /* beyond RAM */
    assert_false(walk_leads_to(&m, CR3, 0x7f00000000, 0x204000));
    /* Tables that lead to themselves end it at some time. */
    for (unsigned i = 300; i < 500; i += 2)
        *entry(CR3, i) = CR3 | PTE_PRESENT;
    assert_false(walk_leads_to(&m, CR3, 0x7f00000000, 0x204000));
    *entry(0x6000, 2) = 0x7f00000000 | PTE_PRESENT | PTE_LARGE;
    for (unsigned i = 300; i < 500; i += 2)
        *entry(CR3, i) = 0;
    assert_true(walk_leads_to(&m, CR3, 0x7f00100000, 0x1000));
}

static void test_finds_tables(void **state)
{
    const uint32_t pages[] = {1, 2, 5, 6, 8, 0x10, 0x200};
    const bool expected[] = {true, true, true, true, false, false, false};
    const uint64_t roots[] = {0x8000, CR3 | 0x18};
    bool is_table[7];

    (void)state;
    assert_int_equal(CR3, 0x1000);
    assert_true(walk_find_tables(&m, roots + 1, 1, pages, 7, is_table));
    assert_memory_equal(is_table, expected, sizeof expected);
    /* Another root, and what only that leads to. */
    *entry(0x8000, 3) = 0x9000 | PTE_PRESENT;
    *entry(0x9000, 3) = 0x10000 | PTE_PRESENT;
    assert_true(walk_find_tables(&m, roots, 2, pages, 7, is_table));
    assert_true(is_table[0] && is_table[3] && is_table[4] && is_table[5] && !is_table[6]);
    assert_true(walk_find_tables(&m, roots, 1, pages, 7, is_table));
    assert_true(!is_table[0] && is_table[4]);
    *entry(0x8000, 3) = *entry(0x9000, 3) = 0;
    /* Tables that lead to themselves, and out of memory. */
    *entry(CR3, 300) = CR3 | PTE_PRESENT;
    *entry(CR3, 301) = 0xff00000000 | PTE_PRESENT;
    assert_true(walk_find_tables(&m, roots + 1, 1, pages, 7, is_table));
    assert_memory_equal(is_table, expected, sizeof expected);
    /* Neighbours that lead to the same one are one; others are too many at some time. */
    for (unsigned i = 300; i < 500; i++)
        *entry(CR3, i) = CR3 | PTE_PRESENT;
    assert_true(walk_find_tables(&m, roots + 1, 1, pages, 7, is_table));
    assert_memory_equal(is_table, expected, sizeof expected);
    for (unsigned i = 300; i < 500; i += 2)
        *entry(CR3, i) = 0x8000 | PTE_PRESENT;
    assert_false(walk_find_tables(&m, roots + 1, 1, pages, 7, is_table));
    for (unsigned i = 300; i < 500; i++)
        *entry(CR3, i) = 0;
    assert_true(walk_find_tables(&m, roots, 2, pages, 0, is_table));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_walk, make, drop),
        cmocka_unit_test_setup_teardown(test_touch_with_a_lent_root, make, drop),
        cmocka_unit_test_setup_teardown(test_read_stops_at_what_is_not_mapped, make, drop),
        cmocka_unit_test_setup_teardown(test_walk_survives_any_tables, make, drop),
        cmocka_unit_test_setup_teardown(test_digest_is_of_contents_only, make, drop),
        cmocka_unit_test_setup_teardown(test_kernel_tables, make, drop),
        cmocka_unit_test_setup_teardown(test_find_user, make, drop),
        cmocka_unit_test_setup_teardown(test_user_can_write_by_any_mapping, make, drop),
        cmocka_unit_test_setup_teardown(test_finds_tables, make, drop),
        cmocka_unit_test_setup_teardown(test_leads_to, make, drop),
        cmocka_unit_test(test_digest_depends_on_the_place),
        cmocka_unit_test(test_digests_are_what_files_have),
        cmocka_unit_test_setup_teardown(test_accessed_and_dirty_bits_do_not_count, make, drop),
        cmocka_unit_test(test_bits_of_data_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
