#include "tests/unit/devices/legacy_test.h"

#include "devices/calendar.h"
#include "devices/rtc.h"

/* 2024-02-29 23:59:50 UTC, a Thursday. */
#define LEAP_DAY_EVENING 1709251190ull

struct fixture {
    struct rtc rtc;
    struct bus pio;
    struct fake_time time;
    struct fake_wire irq8, wake;
};

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){.time = fake_time_at(SECOND / 3, LEAP_DAY_EVENING * SECOND)};
    rtc_init(&f->rtc, fake_pin(&f->irq8), fake_pin(&f->wake), &f->time.time);
    assert_int_equal(rtc_attach(&f->rtc, &f->pio, &e), 0);
}

static unsigned get(struct fixture *f, unsigned index)
{
    bus_write(&f->pio, 0x70, 1, index);
    return (unsigned)bus_read(&f->pio, 0x71, 1);
}

static void put(struct fixture *f, unsigned index, unsigned value)
{
    bus_write(&f->pio, 0x70, 1, index);
    bus_write(&f->pio, 0x71, 1, value);
}

static void check_clock(struct fixture *f, const uint8_t expected[8])
{
    static const uint8_t indices[8] = {RTC_CENTURY, 9, 8, 7, 6, 4, 2, 0};

    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(get(f, indices[i]), expected[i]);
}

static void pass(struct fixture *f, uint64_t ns)
{
    f->time.now += ns;
    f->time.wall += ns;
}

static uint64_t deadline(const struct fixture *f)
{
    return f->rtc.dev.ops->deadline(&f->rtc.dev);
}

/* Let time run to the deadline. */
static void wait_for_deadline(struct fixture *f)
{
    uint64_t at = deadline(f);

    assert_true(at != NEVER && at >= f->time.now);
    pass(f, at - f->time.now);
    f->rtc.dev.ops->poll(&f->rtc.dev, f->time.now);
}

static void test_calendar(void **unused)
{
    (void)unused;
    struct calendar c = calendar_of(0);
    assert_int_equal(c.year * 10000 + (int)c.month * 100 + (int)c.day, 19700101);
    assert_int_equal(c.weekday, 5);
    c = calendar_of(LEAP_DAY_EVENING);
    assert_int_equal(c.year * 10000 + (int)c.month * 100 + (int)c.day, 20240229);
    assert_int_equal(c.weekday, 5);
    assert_int_equal(c.hour * 10000 + c.minute * 100 + c.second, 235950);
    c = calendar_of(CALENDAR_FIRST);
    assert_int_equal(c.year * 10000 + (int)c.month * 100 + (int)c.day, 101);
    c = calendar_of(CALENDAR_LAST);
    assert_int_equal(c.year * 10000 + (int)c.month * 100 + (int)c.day, 99991231);
    c = calendar_of(INT64_MAX);
    assert_int_equal(c.year, 9999);

    /* Every day of 10,000 years follows the one before it and converts back. */
    static const unsigned days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct calendar last = calendar_of(CALENDAR_FIRST);
    for (int64_t s = CALENDAR_FIRST + 86400; s <= CALENDAR_LAST; s += 86400) {
        c = calendar_of(s);
        bool leap = last.year % 4 == 0 && (last.year % 100 != 0 || last.year % 400 == 0);
        unsigned length = days[last.month - 1] + (last.month == 2 && leap);
        if (c.day != last.day + 1) {
            assert_int_equal(c.day, 1);
            assert_int_equal(last.day, length);
            assert_int_equal(c.month, last.month % 12 + 1);
            assert_int_equal(c.year, last.year + (last.month == 12));
        } else if (c.month != last.month || c.day > length) {
            fail();
        }
        if (c.weekday != last.weekday % 7 + 1 || calendar_seconds(&c) != s)
            fail();
        last = c;
    }
}

static void test_shows_the_time(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    check_clock(&f, (uint8_t[]){0x20, 0x24, 0x02, 0x29, 0x05, 0x23, 0x59, 0x50});
    assert_int_equal(get(&f, 10), 0x26); /* never UIP */
    assert_int_equal(get(&f, 13), 0x80);
    pass(&f, 10 * SECOND);
    check_clock(&f, (uint8_t[]){0x20, 0x24, 0x03, 0x01, 0x06, 0x00, 0x00, 0x00});
    put(&f, 11, 0x04); /* binary, 12 hours */
    check_clock(&f, (uint8_t[]){0x20, 24, 3, 1, 6, 12, 0, 0});
    pass(&f, 13 * 3600 * SECOND);
    assert_int_equal(get(&f, 4), 0x81);
    put(&f, 11, 0x00); /* BCD, 12 hours */
    pass(&f, 10 * 3600 * SECOND);
    assert_int_equal(get(&f, 4), 0x91);
    put(&f, 11, 0x06);
    assert_int_equal(get(&f, 4), 23);
}

static void test_setting_moves_an_offset(void **unused)
{
    static const uint8_t indices[] = {RTC_CENTURY, 9, 8, 7, 4, 2, 0};
    static const uint8_t values[] = {0x19, 0x99, 0x12, 0x31, 0x23, 0x59, 0x58};
    struct fixture f;

    (void)unused;
    make(&f);
    put(&f, 11, 0x82); /* stopped, as Linux sets it */
    pass(&f, 100 * SECOND);
    assert_int_equal(get(&f, 0), 0x50);
    for (unsigned i = 0; i < 7; i++)
        put(&f, indices[i], values[i]);
    pass(&f, 100 * SECOND);
    put(&f, 11, 0x02);
    check_clock(&f, (uint8_t[]){0x19, 0x99, 0x12, 0x31, 0x06, 0x23, 0x59, 0x58});
    pass(&f, 2 * SECOND);
    check_clock(&f, (uint8_t[]){0x20, 0x00, 0x01, 0x01, 0x07, 0x00, 0x00, 0x00});
    put(&f, 4, 0x15); /* while it runs, too */
    check_clock(&f, (uint8_t[]){0x20, 0x00, 0x01, 0x01, 0x07, 0x15, 0x00, 0x00});
}

static void test_nonsense_is_brought_into_range(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    put(&f, 11, 0x82);
    for (unsigned i = 0; i < 10; i++)
        put(&f, i, 0xff);
    put(&f, RTC_CENTURY, 0xff);
    put(&f, 11, 0x02);
    assert_int_equal(get(&f, 9), 0x99);
    assert_int_equal(get(&f, RTC_CENTURY), 0x99);
    put(&f, 8, 0x00); /* month 0 is the December before */
    put(&f, RTC_CENTURY, 0x00);
    assert_in_range(get(&f, 8), 0x01, 0x12);
}

static void test_memory_keeps_bytes(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    for (unsigned i = 14; i < RTC_BYTES; i++)
        if (i != RTC_CENTURY)
            put(&f, i, i ^ 0x5a);
    for (unsigned i = 14; i < RTC_BYTES; i++)
        if (i != RTC_CENTURY)
            assert_int_equal(get(&f, i | 0x80), i ^ 0x5a); /* bit 7 is no address bit */
    put(&f, 13, 0);
    assert_int_equal(get(&f, 13), 0x80);
}

static void test_periodic_interrupt(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_true(deadline(&f) == NEVER);
    put(&f, 11, 0x42);
    uint64_t start = f.time.now;
    for (unsigned i = 0; i < 1024; i++) {
        wait_for_deadline(&f);
        assert_true(f.irq8.level);
        assert_true(deadline(&f) == NEVER); /* nothing new before it is acknowledged */
        assert_int_equal(get(&f, 12), 0xc0);
        assert_false(f.irq8.level);
    }
    assert_in_range(f.time.now - start, SECOND - SECOND / 1024, SECOND);
    put(&f, 10, 0x2f); /* 2 Hz */
    uint64_t before = f.time.now;
    wait_for_deadline(&f);
    get(&f, 12);
    assert_true(f.time.now - before <= SECOND / 2);
    before = f.time.now;
    wait_for_deadline(&f);
    assert_in_range(f.time.now - before, SECOND / 2 - 1, SECOND / 2 + 1);
    get(&f, 12);
    put(&f, 10, 0x20); /* rate 0: none */
    assert_true(deadline(&f) == NEVER);
}

static void test_update_interrupt(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    pass(&f, SECOND / 4);
    get(&f, 12);
    put(&f, 11, 0x12);
    assert_true(deadline(&f) == f.time.now + SECOND * 3 / 4);
    wait_for_deadline(&f);
    assert_true(f.irq8.level);
    assert_int_equal(get(&f, 0), 0x51);
    assert_int_equal(get(&f, 12) & 0x90, 0x90);
    wait_for_deadline(&f);
    assert_int_equal(get(&f, 0), 0x52);
    put(&f, 11, 0x92); /* stopping the clock ends them */
    assert_int_equal(get(&f, 11), 0x82);
    assert_true(deadline(&f) == NEVER);
}

/* For 00:01:30, not enabled. */
static void set_alarm(struct fixture *f)
{
    put(f, 5, 0x00);
    put(f, 3, 0x01);
    put(f, 1, 0x30);
}

static void test_alarm(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    set_alarm(&f);
    assert_true(deadline(&f) == NEVER); /* not enabled */
    put(&f, 11, 0x22);
    assert_true(deadline(&f) == f.time.now + 100 * SECOND); /* 00:01:30 is 100 s away */
    pass(&f, 99 * SECOND);
    assert_int_equal(get(&f, 12) & 0xa0, 0);
    assert_false(f.wake.level);
    wait_for_deadline(&f);
    assert_true(f.irq8.level);
    assert_true(f.wake.level);
    assert_int_equal(get(&f, 12) & 0xa0, 0xa0);
    put(&f, 5, 0xff); /* any hour: again in an hour */
    uint64_t start = f.time.now;
    wait_for_deadline(&f);
    assert_true(f.time.now - start == 3600 * SECOND);
    get(&f, 12);
    put(&f, 3, 0xc0);
    put(&f, 1, 0xc0); /* any second */
    start = f.time.now;
    wait_for_deadline(&f);
    assert_true(f.time.now - start == SECOND);
    get(&f, 12);
    put(&f, 1, 0x77); /* never */
    assert_true(deadline(&f) == NEVER);
}

static void test_wall_clock_may_jump(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    put(&f, 11, 0x12);
    f.time.wall -= 1000 * SECOND;
    f.rtc.dev.ops->poll(&f.rtc.dev, f.time.now);
    assert_false(f.irq8.level);
    wait_for_deadline(&f);
    assert_true(f.irq8.level);
    f.time.wall += 100000 * SECOND;
    assert_int_equal(get(&f, 12) & 0x90, 0x90);
    check_clock(&f, (uint8_t[]){0x20, 0x24, 0x03, 0x02, 0x07, 0x03, 0x29, 0x51});
}

/* A machine that goes on is told today's date: what it waited for was long ago. */
static void test_another_wall_clock_sets_off_no_alarm(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    set_alarm(&f);
    put(&f, 11, 0x22); /* at 00:01:30, in 100 s */
    f.time.wall += 86400 * SECOND + 50 * SECOND;
    rtc_wall_changed(&f.rtc);
    f.rtc.dev.ops->poll(&f.rtc.dev, f.time.now);
    assert_false(f.irq8.level);
    assert_true(deadline(&f) == f.time.now + 50 * SECOND);
    check_clock(&f, (uint8_t[]){0x20, 0x24, 0x03, 0x02, 0x07, 0x00, 0x00, 0x40});
}

static void test_state(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make(&f);
    make(&other);
    put(&f, 4, 0x05);
    put(&f, 0x50, 0x77);
    put(&f, 1, 0x55);
    put(&f, 3, 0x59);
    put(&f, 5, 0xff);
    put(&f, 11, 0x72);
    wait_for_deadline(&f);
    other.time = f.time;
    check_round_trip(&f.rtc.dev, &other.rtc.dev);
    assert_true(other.irq8.level);
    assert_int_equal(get(&other, 4), 0x05);
    assert_int_equal(get(&other, 0x50), 0x77);
    assert_int_equal(get(&f, 12), get(&other, 12));
    assert_true(deadline(&f) == deadline(&other));
    restore_garbage(&f.rtc.dev, &other.rtc.dev, &f.time);
}

static void test_rough_use(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    use_roughly(&f.rtc.dev, &f.pio, &f.time, 0x6f, 0x72);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_shows_the_time),
        cmocka_unit_test(test_setting_moves_an_offset),
        cmocka_unit_test(test_nonsense_is_brought_into_range),
        cmocka_unit_test(test_memory_keeps_bytes),
        cmocka_unit_test(test_periodic_interrupt),
        cmocka_unit_test(test_update_interrupt),
        cmocka_unit_test(test_alarm),
        cmocka_unit_test(test_wall_clock_may_jump),
        cmocka_unit_test(test_another_wall_clock_sets_off_no_alarm),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
