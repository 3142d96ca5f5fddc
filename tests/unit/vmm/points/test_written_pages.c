#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "vmm/points/gphook.h"
#include "vmm/points/written_pages.h"

#define PAGES 5
static const uint32_t numbers[PAGES] = {1, 7, 8, 300, 2047};

/* A machine whose pages 1, 7, ... a landmark holds as they are now. */
struct noted {
    struct vm vm;
    struct bytes list;
    struct landmark l;
    uint8_t checks[PAGES];
};

static uint8_t *page(const struct noted *n, unsigned i)
{
    return n->vm.memory.host + (size_t)numbers[i] * PAGE_BYTES;
}

static struct landmark_page listed(const struct noted *n, unsigned i)
{
    struct cursor list = cursor_of(n->list.data, n->list.len);
    struct landmark_page found = {0};

    for (unsigned k = 0; k <= i; k++)
        assert_true(landmark_next_page(&list, &found));
    return found;
}

/* Have the landmark list these pages, the one with the index `table` as a page table, as they are.
 */
static void list_pages(struct noted *n, const uint32_t number[PAGES], unsigned table)
{
    struct landmark_page last = {0};

    n->list.len = 0;
    for (unsigned i = 0; i < PAGES; i++) {
        const struct landmark_page p = {.page = number[i], .is_table = i == table};
        landmark_put_page(&n->list, &last, &p);
    }
    n->l = (struct landmark){
        .exact = true, .pages = PAGES, .page_list = n->list.data, .page_list_bytes = n->list.len};
    written_pages_note(&n->vm, 0, &n->l, n->checks);
}

static int note(void **state)
{
    static struct noted n;
    struct err e;

    memset(&n, 0, sizeof n);
    if (guest_memory_create(&n.vm.memory, 16 << 20, &e) < 0)
        return -1;
    for (unsigned i = 0; i < PAGES; i++)
        memset(page(&n, i), 'a' + (int)i, PAGE_BYTES);
    list_pages(&n, numbers, PAGES);
    *state = &n;
    return 0;
}

static int forget(void **state)
{
    struct noted *n = *state;

    bytes_free(&n->list);
    guest_memory_destroy(&n->vm.memory);
    return 0;
}

/* Each page, changed alone, at each place of a word, is noticed, whatever the hint says. */
static void test_each_page_counts(void **state)
{
    struct noted *n = *state;

    for (unsigned hinted = 0; hinted <= PAGES; hinted++)
        for (unsigned i = 0; i < PAGES; i++)
            for (unsigned at = 0; at < PAGE_BYTES; at += 511) {
                struct page_hint hint = {.known = hinted < PAGES};
                if (hint.known) {
                    hint.index = hinted;
                    hint.page = listed(n, hinted);
                }
                page(n, i)[at] ^= 1;
                assert_false(written_pages_equal(&n->vm, 0, &n->l, &hint));
                page(n, i)[at] ^= 1;
                assert_true(written_pages_equal(&n->vm, 0, &n->l, &hint));
            }
}

/* The hint is the page that differed, and stays while others differ as well. */
static void test_hint_is_what_differed(void **state)
{
    struct noted *n = *state;
    struct page_hint hint = {.known = false};
    unsigned told = 0;

    for (unsigned value = 1; value < 256; value++) {
        page(n, 3)[8] = (uint8_t)('d' ^ value);
        assert_false(written_pages_equal(&n->vm, 0, &n->l, &hint));
        if (hint.known) {
            assert_int_equal(hint.index, 3);
            assert_int_equal(hint.page.page, numbers[3]);
            told++;
        }
    }
    assert_true(told >
                200); /* a byte is the same once in 256 times, and the sum has the last word */
    page(n, 3)[8] = 'd';
    assert_true(written_pages_equal(&n->vm, 0, &n->l, &hint));
}

/* Recordings before format 17 have no bytes: the sum of all is as good. */
static void test_without_checks(void **state)
{
    struct noted *n = *state;
    struct page_hint hint = {.known = false};

    n->l.page_checks = NULL;
    assert_true(written_pages_equal(&n->vm, 0, &n->l, &hint));
    for (unsigned i = 0; i < PAGES; i++) {
        page(n, i)[4095] ^= 0x80;
        assert_false(written_pages_equal(&n->vm, 0, &n->l, &hint));
        assert_false(hint.known);
        page(n, i)[4095] ^= 0x80;
    }
}

/* What a file says, and no recorder of ours has written: refused, not followed. */
static void test_pages_that_are_not_there(void **state)
{
    struct noted *n = *state;
    struct page_hint hint = {.known = false};
    const struct landmark_page beyond = {.page = 1u << 30};
    struct landmark_page last = listed(n, PAGES - 1);

    landmark_put_page(&n->list, &last, &beyond);
    n->l.page_list = n->list.data;
    n->l.page_list_bytes = n->list.len;
    n->l.pages++;
    n->l.page_checks = NULL;
    assert_false(written_pages_equal(&n->vm, 0, &n->l, &hint));
    hint = (struct page_hint){.known = true, .index = 0, .page = beyond};
    n->l.page_checks = n->checks;
    page(n, 0)[0] ^= 1;
    assert_false(written_pages_equal(&n->vm, 0, &n->l, &hint));
}

/* The frame of an exception of user code is no part of its page. */
static void test_frame_is_hidden(void **state)
{
    struct noted *n = *state;
    const uint64_t frame = (uint64_t)numbers[2] * PAGE_BYTES + 0x800;
    struct page_hint hint = {.known = false};

    written_pages_note(&n->vm, frame, &n->l, n->checks);
    memset(page(n, 2) + 0x800, 0x55, sizeof(struct exception_frame));
    assert_true(written_pages_equal(&n->vm, frame, &n->l, &hint));
    page(n, 2)[0x7ff] ^= 1;
    assert_false(written_pages_equal(&n->vm, frame, &n->l, &hint));
}

/* A GPA of 0 would be none to who watches it. */
static void test_first_page_is_not_awaited(void **state)
{
    static const uint32_t from_the_first[PAGES] = {0, 1, 2, 3, 4};
    struct noted *n = *state;
    struct page_to_come to_come[PAGES];

    list_pages(n, from_the_first, PAGES);
    n->vm.memory.host[0] ^= 1;
    n->vm.memory.host[PAGE_BYTES] ^= 1;
    assert_int_equal(written_pages_to_come(&n->vm, 0, &n->l, to_come), 1);
    assert_int_equal(to_come[0].gpa, PAGE_BYTES);
}

/* Pages that are not yet as at the landmark, each until it is; not page tables, and none where no
 * byte tells. */
static void test_pages_to_come(void **state)
{
    struct noted *n = *state;
    struct page_to_come to_come[PAGES];

    assert_int_equal(written_pages_to_come(&n->vm, 0, &n->l, to_come), 0);
    memset(page(n, 1), 'B', PAGE_BYTES);
    memset(page(n, 4), 'E', PAGE_BYTES);
    assert_int_equal(written_pages_to_come(&n->vm, 0, &n->l, to_come), 2);
    assert_int_equal(to_come[0].gpa, (uint64_t)numbers[1] * PAGE_BYTES);
    assert_int_equal(to_come[1].gpa, (uint64_t)numbers[4] * PAGE_BYTES);
    assert_true(written_page_is_to_come(&n->vm, 0, &to_come[1]));
    memset(page(n, 4), 'e', PAGE_BYTES);
    assert_false(written_page_is_to_come(&n->vm, 0, &to_come[1]));
    assert_true(written_page_is_to_come(&n->vm, 0, &to_come[0]));
    n->l.page_checks = NULL;
    assert_int_equal(written_pages_to_come(&n->vm, 0, &n->l, to_come), 0);
}

static void test_tables_are_not_awaited(void **state)
{
    struct noted *n = *state;
    struct page_to_come to_come[PAGES];

    list_pages(n, numbers, 1);
    memset(page(n, 1), 'B', PAGE_BYTES);
    memset(page(n, 2), 'C', PAGE_BYTES);
    assert_int_equal(written_pages_to_come(&n->vm, 0, &n->l, to_come), 1);
    assert_int_equal(to_come[0].page.page, numbers[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_page_counts, note, forget),
        cmocka_unit_test_setup_teardown(test_hint_is_what_differed, note, forget),
        cmocka_unit_test_setup_teardown(test_without_checks, note, forget),
        cmocka_unit_test_setup_teardown(test_pages_that_are_not_there, note, forget),
        cmocka_unit_test_setup_teardown(test_frame_is_hidden, note, forget),
        cmocka_unit_test_setup_teardown(test_pages_to_come, note, forget),
        cmocka_unit_test_setup_teardown(test_first_page_is_not_awaited, note, forget),
        cmocka_unit_test_setup_teardown(test_tables_are_not_awaited, note, forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
