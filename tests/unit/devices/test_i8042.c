#include "tests/unit/devices/legacy_test.h"

#include "devices/i8042.h"

struct fixture {
    struct i8042 i8042;
    struct bus pio;
    struct fake_machine machine;
};

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){0};
    i8042_init(&f->i8042,
               (struct machine_request_pin){.send = fake_request, .opaque = &f->machine});
    assert_int_equal(i8042_attach(&f->i8042, &f->pio, &e), 0);
}

static void test_linux_finds_no_controller_and_does_not_wait(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    /* Its probe empties the output buffer, at most 16 bytes, before anything else. */
    for (unsigned i = 0; i < 17; i++) {
        assert_int_equal(bus_read(&f.pio, 0x64, 1) & 0x01, 0x01);
        bus_read(&f.pio, 0x60, 1);
    }
    assert_int_equal(bus_read(&f.pio, 0x64, 1) & 0x02, 0); /* its reboot waits for this */
}

static void test_reset_commands(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    bus_write(&f.pio, 0x64, 1, 0xaa);
    bus_write(&f.pio, 0x60, 1, 0xfe);
    bus_write(&f.pio, 0x92, 1, 0x02);
    assert_int_equal(f.machine.resets, 0);
    bus_write(&f.pio, 0x64, 1, 0xfe);
    assert_int_equal(f.machine.resets, 1);
    bus_write(&f.pio, 0x92, 1, 0x03);
    assert_int_equal(f.machine.resets, 2);
    assert_int_equal(f.machine.poweroffs, 0);
}

static void test_a20_reads_back(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(bus_read(&f.pio, 0x92, 1), 0x02);
    bus_write(&f.pio, 0x92, 1, 0xfc);
    assert_int_equal(bus_read(&f.pio, 0x92, 1), 0x00);
}

static void test_state(void **unused)
{
    struct fixture f, other;
    struct fake_time time = fake_time_at(0, 0);

    (void)unused;
    make(&f);
    make(&other);
    bus_write(&f.pio, 0x92, 1, 0x00);
    check_round_trip(&f.i8042.dev, &other.i8042.dev);
    assert_int_equal(bus_read(&other.pio, 0x92, 1), 0x00);
    restore_garbage(&f.i8042.dev, &other.i8042.dev, &time);
}

static void test_rough_use(void **unused)
{
    struct fixture f;
    struct fake_time time = fake_time_at(0, 0);

    (void)unused;
    make(&f);
    use_roughly(&f.i8042.dev, &f.pio, &time, 0x5f, 0x93);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linux_finds_no_controller_and_does_not_wait),
        cmocka_unit_test(test_reset_commands),
        cmocka_unit_test(test_a20_reads_back),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
