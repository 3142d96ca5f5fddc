/* code_is_stable(): which kernel code a forced point may lie in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vmm/points/clock.h"

#define VA  0xffffffff81000000ull
#define GPA 0x1000000ull

static uint8_t text[] = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3};
static const struct stable_code stable = {
    .range = {{.va = VA, .gpa = GPA, .len = sizeof text, .bytes = text}}, .count = 1};

static void test_code_as_it_was_is_stable(void **state)
{
    (void)state;
    assert_true(code_is_stable(&stable, VA + 1, GPA + 1, text + 1, 3));
}

static void test_rewritten_code_is_not(void **state)
{
    static const uint8_t call[] = {0xe8, 1, 2};

    (void)state;
    assert_false(code_is_stable(&stable, VA + 1, GPA + 1, call, sizeof call));
}

/* A user program's page in memory that the kernel freed (its start-up code) is as good as any. If
 * it were not, the program's loops could not be interrupted at all. */
static void test_freed_memory_is_like_any_other(void **state)
{
    static const uint8_t loop[] = {0x48, 0xff, 0xc0};

    (void)state;
    assert_true(code_is_stable(&stable, 0x401000, GPA, loop, sizeof loop));
    assert_true(code_is_stable(&stable, VA + sizeof text, GPA + sizeof text, loop, sizeof loop));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_as_it_was_is_stable),
        cmocka_unit_test(test_rewritten_code_is_not),
        cmocka_unit_test(test_freed_memory_is_like_any_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
