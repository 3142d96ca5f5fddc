#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recording/meta.h"

/* Recordings of before it was noted are taken to be of a QEMU that never sets RF. */
static void frames_have_no_rf_unless_it_says_so(void **state)
{
    json_t *none = json_pack("{s:{s:I}}", "machine", "memory", (json_int_t)4096);
    json_t *faults = json_pack("{s:{s:s}}", "machine", "frame_rf", "faults");
    json_t *number = json_pack("{s:{s:i}}", "machine", "frame_rf", 1);

    (void)state;
    assert_string_equal(meta_frame_rf(none), "none");
    assert_string_equal(meta_frame_rf(number), "none");
    assert_string_equal(meta_frame_rf(faults), "faults");
    json_decref(none);
    json_decref(faults);
    json_decref(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_have_no_rf_unless_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
