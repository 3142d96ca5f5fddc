#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mmu/memory.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void small_memory_is_all_low_and_zero(void **state)
{
    struct guest_memory m;
    struct err e;

    (void)state;
    assert_int_equal(guest_memory_create(&m, 16 * MIB, &e), 0);
    assert_int_equal(m.low_size, 16 * MIB);
    assert_int_equal(m.high_size, 0);
    assert_true(fcntl(m.fd, F_GETFD) & FD_CLOEXEC);

    uint8_t *last = guest_memory_at(&m, 16 * MIB - 1, 1);

    assert_non_null(last);
    assert_int_equal(*last, 0);
    *last = 7;

    uint8_t through_file = 0;

    assert_int_equal(pread(m.fd, &through_file, 1, 16 * MIB - 1), 1);
    assert_int_equal(through_file, 7);
    assert_null(guest_memory_at(&m, 16 * MIB - 1, 2));
    assert_null(guest_memory_at(&m, 16 * MIB, 0));
    assert_null(guest_memory_at(&m, 0, UINT64_MAX));
    assert_null(guest_memory_at(&m, MEMORY_HIGH_BASE, 1));
    guest_memory_destroy(&m);
    assert_int_equal(m.fd, -1);
    guest_memory_destroy(&m);
}

static void large_memory_leaves_the_pci_hole_free(void **state)
{
    struct guest_memory m;
    struct err e;

    (void)state;
    assert_int_equal(guest_memory_create(&m, 5 * GIB, &e), 0);
    assert_int_equal(m.low_size, 3 * GIB);
    assert_int_equal(m.high_size, 2 * GIB);
    assert_non_null(guest_memory_at(&m, MEMORY_HOLE_BASE - 4096, 4096));
    assert_null(guest_memory_at(&m, MEMORY_HOLE_BASE - 4096, 4097));
    assert_null(guest_memory_at(&m, MEMORY_HOLE_BASE, 1));
    assert_null(guest_memory_at(&m, MEMORY_HIGH_BASE - 1, 2));
    assert_ptr_equal(guest_memory_at(&m, MEMORY_HIGH_BASE, 8), m.host + 3 * GIB);
    assert_non_null(guest_memory_at(&m, 6 * GIB - 1, 1));
    assert_null(guest_memory_at(&m, 6 * GIB - 1, 2));
    assert_null(guest_memory_at(&m, UINT64_MAX, 1));
    guest_memory_destroy(&m);
}

static void impossible_sizes_are_refused(void **state)
{
    static const uint64_t sizes[] = {
        0, 14 * MIB, 17 * MIB, 16 * MIB + 1, 1024 * GIB + 2 * MIB, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct guest_memory m;
        struct err e;

        assert_int_equal(guest_memory_create(&m, sizes[i], &e), -1);
        assert_int_equal(e.status, STATUS_USAGE);
        assert_non_null(strstr(e.text, "MiB"));
        guest_memory_destroy(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_memory_is_all_low_and_zero),
        cmocka_unit_test(large_memory_leaves_the_pci_hole_free),
        cmocka_unit_test(impossible_sizes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
