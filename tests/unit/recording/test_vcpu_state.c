/* vmm/kvm/vcpu_state.c: what a recording starts from is read as it was written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "vmm/kvm/vcpu_state.h"

static void pending_round_trip(void **state)
{
    struct vcpu_pending written = {0}, got;
    struct bytes b = {0};

    (void)state;
    written.events.exception.pending = 1;
    written.events.exception.nr = 13;
    written.events.exception.has_error_code = 1;
    written.events.exception.error_code = 0xdeadbeef;
    written.events.interrupt.injected = 1;
    written.events.interrupt.nr = 0x30;
    written.events.interrupt.shadow = 2;
    written.events.nmi.masked = 1;
    written.events.flags = KVM_VCPUEVENT_VALID_SHADOW | KVM_VCPUEVENT_VALID_NMI_PENDING;
    for (unsigned i = 0; i < 4; i++)
        written.debug.db[i] = 0x1122334455667788ull << i;
    written.debug.dr6 = 0xffff0ff0;
    written.debug.dr7 = 0x400;
    vcpu_pending_encode(&b, &written);
    for (size_t len = 0; len < b.len; len++) { /* cut off anywhere */
        struct cursor cut = cursor_of(b.data, len);
        assert_false(vcpu_pending_decode(&cut, &got));
    }
    struct cursor c = cursor_of(b.data, b.len);
    assert_true(vcpu_pending_decode(&c, &got));
    assert_int_equal(cursor_left(&c), 0);
    assert_memory_equal(&got, &written, sizeof got);
    assert_true(vcpu_pending_fault(&got));
    bytes_free(&b);
}

/* Flags that a host may have and another not are no part of it. */
static void unknown_flags_are_refused(void **state)
{
    struct vcpu_pending written = {0}, got;
    struct bytes b = {0};

    (void)state;
    written.events.flags = KVM_VCPUEVENT_VALID_SMM;
    vcpu_pending_encode(&b, &written);
    struct cursor c = cursor_of(b.data, b.len);
    assert_false(vcpu_pending_decode(&c, &got));
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_round_trip),
        cmocka_unit_test(unknown_flags_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
