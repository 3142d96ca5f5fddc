#include "tests/unit/devices/legacy_test.h"

/* Remembers the last access. */
struct probe {
    uint64_t offset, value;
    unsigned size, accesses;
};

static uint64_t probe_read(void *dev, uint64_t offset, unsigned size)
{
    struct probe *probe = dev;

    probe->offset = offset;
    probe->size = size;
    probe->accesses++;
    return 0x1122334455667788ull;
}

static void probe_write(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    probe_read(dev, offset, size);
    ((struct probe *)dev)->value = value;
}

static const struct bus_ops probe_ops = {probe_read, probe_write};

static int add(struct bus *bus, uint64_t base, uint64_t size, struct probe *probe)
{
    struct err e;
    struct bus_range range = {
        .base = base, .size = size, .ops = &probe_ops, .dev = probe, .name = "probe"};

    return bus_add(bus, &range, &e);
}

static void test_access_reaches_the_right_range(void **unused)
{
    struct bus bus = {0};
    struct probe probe[3] = {0};

    (void)unused;
    assert_int_equal(add(&bus, 0x300, 8, &probe[2]), 0);
    assert_int_equal(add(&bus, 0x100, 8, &probe[0]), 0);
    assert_int_equal(add(&bus, 0x108, 4, &probe[1]), 0);
    assert_int_equal(bus_read(&bus, 0x107, 1), 0x88);
    assert_int_equal(probe[0].offset, 7);
    assert_int_equal(bus_read(&bus, 0x108, 4), 0x55667788);
    assert_int_equal(probe[1].offset, 0);
    assert_int_equal(probe[1].size, 4);
    bus_write(&bus, 0x306, 2, 0xabcdef);
    assert_int_equal(probe[2].offset, 6);
    assert_int_equal(probe[2].value, 0xcdef);
    assert_true(bus_read(&bus, 0x300, 8) == 0x1122334455667788ull);
    assert_int_equal(probe[0].accesses, 1);
}

static void test_unclaimed_reads_as_ones(void **unused)
{
    struct bus bus = {0};
    struct probe probe = {0};

    (void)unused;
    assert_int_equal(bus_read(&bus, 0x100, 1), 0xff);
    assert_int_equal(add(&bus, 0x100, 8, &probe), 0);
    assert_int_equal(bus_read(&bus, 0xff, 1), 0xff);
    assert_int_equal(bus_read(&bus, 0x108, 2), 0xffff);
    assert_int_equal(bus_read(&bus, 0x107, 2), 0xffff);    /* crosses the end */
    assert_int_equal(bus_read(&bus, 0xff, 4), 0xffffffff); /* crosses the start */
    assert_true(bus_read(&bus, 0x104, 8) == UINT64_MAX);
    bus_write(&bus, 0x107, 2, 0);
    bus_write(&bus, 0xff, 2, 0);
    assert_int_equal(probe.accesses, 0);
}

static void test_overlap_is_refused(void **unused)
{
    struct bus bus = {0};
    struct probe probe = {0};

    (void)unused;
    assert_int_equal(add(&bus, 0x100, 8, &probe), 0);
    assert_int_equal(add(&bus, 0x110, 8, &probe), 0);
    assert_int_equal(add(&bus, 0x107, 1, &probe), -1);
    assert_int_equal(add(&bus, 0x100, 8, &probe), -1);
    assert_int_equal(add(&bus, 0xf0, 0x11, &probe), -1);
    assert_int_equal(add(&bus, 0x108, 9, &probe), -1);
    assert_int_equal(add(&bus, 0, 0x1000, &probe), -1);
    assert_int_equal(bus.count, 2);
    assert_int_equal(add(&bus, 0x108, 8, &probe), 0); /* fits exactly between them */
}

static void test_bad_ranges_are_refused(void **unused)
{
    struct bus bus = {0};
    struct probe probe = {0};

    (void)unused;
    assert_int_equal(add(&bus, 0x100, 0, &probe), -1);
    assert_int_equal(add(&bus, UINT64_MAX - 6, 8, &probe), -1);
    assert_int_equal(add(&bus, UINT64_MAX - 7, 8, &probe), 0); /* the last eight bytes there are */
    assert_int_equal(bus_read(&bus, UINT64_MAX, 1), 0x88);
    assert_int_equal(bus_read(&bus, UINT64_MAX, 2), 0xffff);
}

static void test_table_fills_up_and_ranges_go(void **unused)
{
    struct bus bus = {0};
    struct probe probe = {0};

    (void)unused;
    for (unsigned i = 0; i < BUS_MAX_RANGES; i++)
        assert_int_equal(add(&bus, i * 16, 16, &probe), 0);
    assert_int_equal(add(&bus, 0x10000, 16, &probe), -1);
    bus_remove(&bus, 0x18); /* inside a range, but not its base */
    assert_int_equal(bus.count, BUS_MAX_RANGES);
    bus_remove(&bus, 0x10);
    assert_int_equal(bus_read(&bus, 0x18, 1), 0xff);
    assert_int_equal(bus_read(&bus, 0x28, 1), 0x88);
    assert_int_equal(add(&bus, 0x10000, 16, &probe), 0);
    for (unsigned i = 0; i < BUS_MAX_RANGES; i++)
        bus_remove(&bus, i * 16);
    bus_remove(&bus, 0x10000);
    assert_int_equal(bus.count, 0);
    bus_remove(&bus, 0);
}

/* What KVM makes of an access of 8 bytes that crosses the edge of a page. */
static void test_odd_sizes_come_in_pieces(void **unused)
{
    static const unsigned last_piece[] = {[3] = 1, [5] = 1, [6] = 2, [7] = 1};
    struct bus bus = {0};
    struct probe probe = {0};

    (void)unused;
    assert_int_equal(add(&bus, 0x1000, 0x1000, &probe), 0);
    for (unsigned size = 3; size <= 7; size++) {
        if (size == 4)
            continue;
        const uint64_t at = 0x2000 - size;
        probe.accesses = 0;
        bus_read(&bus, at, size);
        assert_int_equal(probe.accesses, size == 7 ? 3 : 2);
        assert_int_equal(probe.size, last_piece[size]);
        assert_int_equal(probe.offset, 0x1000 - last_piece[size]);
        bus_write(&bus, at, size, 0x8877665544332211ull);
        assert_int_equal(probe.value, last_piece[size] == 2 ? 0x6655 : 0x11 * size);
    }
    assert_true(bus_read(&bus, 0x1000, 7) == 0x88778855667788ull); /* 4, 2 and 1 byte */
    /* What no range covers, and a part of it. */
    assert_int_equal(bus_read(&bus, 0x3000, 3), 0xffffff);
    assert_true(bus_read(&bus, 0x1ffc, 7) == 0xffffff55667788ull);
    probe.accesses = 0;
    bus_write(&bus, 0x3000, 5, 1);
    assert_int_equal(probe.accesses, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_access_reaches_the_right_range),
        cmocka_unit_test(test_unclaimed_reads_as_ones),
        cmocka_unit_test(test_overlap_is_refused),
        cmocka_unit_test(test_bad_ranges_are_refused),
        cmocka_unit_test(test_table_fills_up_and_ranges_go),
        cmocka_unit_test(test_odd_sizes_come_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
