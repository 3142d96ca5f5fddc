#include "tests/unit/devices/legacy_test.h"

#include "devices/pmtimer.h"

struct fixture {
    struct pmtimer pm;
    struct bus pio;
    struct fake_time time;
    struct fake_wire sci;
    struct fake_machine machine;
};

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){0};
    f->time = fake_time_at(0, 0);
    pmtimer_init(&f->pm, fake_pin(&f->sci), &f->time.time,
                 (struct machine_request_pin){.send = fake_request, .opaque = &f->machine});
    assert_int_equal(pmtimer_attach(&f->pm, &f->pio, &e), 0);
}

static void test_timer_counts(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(bus_read(&f.pio, 0x608, 4), 0);
    f.time.now = SECOND;
    assert_int_equal(bus_read(&f.pio, 0x608, 4), 3579545);
    f.time.now = 1199 * SECOND; /* 4,291,874,455 */
    assert_true(bus_read(&f.pio, 0x608, 4) == 4291874455u);
    assert_int_equal(bus_read(&f.pio, 0x609, 1), 4291874455u >> 8 & 0xff);
    assert_int_equal(bus_read(&f.pio, 0x60a, 2), 4291874455u >> 16);
    f.time.now = 1200 * SECOND; /* past 32 bits */
    assert_int_equal(bus_read(&f.pio, 0x608, 4), 1200 * 3579545ull - (1ull << 32));
    bus_write(&f.pio, 0x608, 4, 0);
    assert_int_equal(bus_read(&f.pio, 0x608, 4), 1200 * 3579545ull - (1ull << 32));
}

static void test_soft_off(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(bus_read(&f.pio, 0x604, 2), 0x0001); /* in ACPI mode */
    bus_write(&f.pio, 0x604, 2, PM_SLEEP_TYPE_OFF << 10); /* Linux writes the type first */
    bus_write(&f.pio, 0x604, 2, 0x2000 | 1 << 10);        /* another state */
    assert_int_equal(f.machine.poweroffs, 0);
    assert_int_equal(bus_read(&f.pio, 0x604, 2), 0x0401); /* SLP_EN reads as 0 */
    bus_write(&f.pio, 0x604, 2, 0x2001 | PM_SLEEP_TYPE_OFF << 10);
    assert_int_equal(f.machine.poweroffs, 1);
    bus_write(&f.pio, 0x605, 1, 0x20 | PM_SLEEP_TYPE_OFF << 2);
    assert_int_equal(f.machine.poweroffs, 2);
    assert_int_equal(f.machine.resets, 0);
}

static void test_power_button(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    pmtimer_power_button(&f.pm);
    assert_false(f.sci.level); /* nobody listens yet */
    bus_write(&f.pio, 0x602, 2, 0x0100);
    assert_true(f.sci.level);
    assert_int_equal(bus_read(&f.pio, 0x600, 2), 0x0100);
    assert_int_equal(bus_read(&f.pio, 0x600, 4), 0x01000100);
    bus_write(&f.pio, 0x600, 2, 0x0001);
    assert_true(f.sci.level);
    bus_write(&f.pio, 0x600, 2, 0x0100);
    assert_false(f.sci.level);
    assert_int_equal(bus_read(&f.pio, 0x600, 2), 0);
}

static void test_rtc_alarm(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    bus_write(&f.pio, 0x602, 2, 0x0400);
    assert_false(f.sci.level);
    pmtimer_rtc_alarm(&f.pm);
    assert_true(f.sci.level);
    assert_int_equal(bus_read(&f.pio, 0x600, 2), 0x0400);
    bus_write(&f.pio, 0x600, 2, 0x0400);
    assert_false(f.sci.level);
}

static void test_timer_overflow_event(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_true(f.pm.dev.ops->deadline(&f.pm.dev) == NEVER);
    bus_write(&f.pio, 0x602, 2, 0x0001);
    for (unsigned i = 1; i < 5; i++) {
        uint64_t at = f.pm.dev.ops->deadline(&f.pm.dev);
        /* 2^31 ticks are 599.93 s */
        assert_in_range(at, i * 599930000000ull, i * 599940000000ull);
        f.time.now = at - 1;
        f.pm.dev.ops->poll(&f.pm.dev, f.time.now);
        assert_false(f.sci.level);
        f.time.now = at;
        f.pm.dev.ops->poll(&f.pm.dev, f.time.now);
        assert_true(f.sci.level);
        assert_true(f.pm.dev.ops->deadline(&f.pm.dev) == NEVER);
        bus_write(&f.pio, 0x600, 2, 0x0001);
        assert_false(f.sci.level);
    }
}

static void test_state(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make(&f);
    make(&other);
    bus_write(&f.pio, 0x602, 2, 0x0101);
    bus_write(&f.pio, 0x604, 2, 0x0c00);
    pmtimer_power_button(&f.pm);
    check_round_trip(&f.pm.dev, &other.pm.dev);
    assert_true(other.sci.level);
    assert_int_equal(bus_read(&other.pio, 0x600, 4), 0x01010100);
    restore_garbage(&f.pm.dev, &other.pm.dev, &f.time);
}

static void test_rough_use(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    use_roughly(&f.pm.dev, &f.pio, &f.time, 0x5fe, 0x60d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timer_counts), cmocka_unit_test(test_soft_off),
        cmocka_unit_test(test_power_button), cmocka_unit_test(test_timer_overflow_event),
        cmocka_unit_test(test_rtc_alarm),    cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
