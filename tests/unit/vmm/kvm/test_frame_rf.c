#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vmm/kvm/frame_rf.h"

static void names_come_back(void **state)
{
    (void)state;
    for (enum frame_rf rf = FRAME_RF_FAULTS; rf < FRAME_RFS; rf++)
        assert_int_equal(frame_rf_named(frame_rf_name(rf)), rf);
}

static void other_names_are_unknown(void **state)
{
    (void)state;
    assert_int_equal(frame_rf_named(NULL), FRAME_RF_UNKNOWN);
    assert_int_equal(frame_rf_named(""), FRAME_RF_UNKNOWN);
    assert_int_equal(frame_rf_named("unknown"), FRAME_RF_UNKNOWN);
    assert_int_equal(frame_rf_named("interrupts"), FRAME_RF_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_come_back),
        cmocka_unit_test(other_names_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
