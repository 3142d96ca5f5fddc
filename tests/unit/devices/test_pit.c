#include "tests/unit/devices/legacy_test.h"

#include "devices/clock_ticks.h"
#include "devices/pit.h"

struct fixture {
    struct pit pit;
    struct bus pio;
    struct fake_time time;
    struct fake_wire irq0;
};

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){.time = fake_time_at(12345, 0)};
    pit_init(&f->pit, fake_pin(&f->irq0), &f->time.time);
    assert_int_equal(pit_attach(&f->pit, &f->pio, &e), 0);
}

static void write_port(struct fixture *f, unsigned port, unsigned value)
{
    bus_write(&f->pio, port, 1, value);
}

static unsigned read_port(struct fixture *f, unsigned port)
{
    return (unsigned)bus_read(&f->pio, port, 1);
}

static void program(struct fixture *f, unsigned channel, unsigned mode, unsigned count)
{
    write_port(f, 0x43, channel << 6 | 0x30 | mode << 1);
    write_port(f, 0x40 + channel, count & 0xff);
    write_port(f, 0x40 + channel, count >> 8 & 0xff);
}

static unsigned latched_count(struct fixture *f, unsigned channel)
{
    write_port(f, 0x43, channel << 6);
    unsigned low = read_port(f, 0x40 + channel);
    return low | read_port(f, 0x40 + channel) << 8;
}

static unsigned status(struct fixture *f, unsigned channel)
{
    write_port(f, 0x43, 0xe0 | 2u << channel);
    return read_port(f, 0x40 + channel);
}

static uint64_t deadline(const struct fixture *f)
{
    return f->pit.dev.ops->deadline(&f->pit.dev);
}

static void poll_at(struct fixture *f, uint64_t now)
{
    f->time.now = now;
    f->pit.dev.ops->poll(&f->pit.dev, now);
}

/* Let that many ticks pass. */
static void pass(struct fixture *f, uint64_t ticks)
{
    poll_at(f, ns_of_tick(ticks_at(f->time.now, PIT_HZ) + ticks, PIT_HZ));
}

static void test_ticks_do_not_drift(void **unused)
{
    (void)unused;
    assert_true(ticks_at(0, PIT_HZ) == 0);
    assert_true(ticks_at(SECOND, PIT_HZ) == PIT_HZ);
    assert_true(ticks_at(SECOND - 1, PIT_HZ) == PIT_HZ - 1);
    for (uint64_t tick = 1; tick < 1ull << 50; tick = tick * 5 + 3) {
        uint64_t ns = ns_of_tick(tick, PIT_HZ);
        assert_true(ticks_at(ns, PIT_HZ) == tick);
        assert_true(ticks_at(ns - 1, PIT_HZ) == tick - 1);
    }
    assert_true(ns_of_tick(UINT64_MAX, PIT_HZ) == UINT64_MAX);
}

static void test_rate_generator_keeps_its_rate(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_true(deadline(&f) == NEVER);
    program(&f, 0, 2, 4772); /* 250 Hz */
    unsigned before = f.irq0.rises;
    uint64_t start = f.time.now, tick = ticks_at(start, PIT_HZ) + 1;
    for (unsigned i = 1; i <= 250000; i++) {
        assert_true(deadline(&f) == ns_of_tick(tick + i * 4772ull, PIT_HZ));
        poll_at(&f, deadline(&f));
    }
    assert_int_equal(f.irq0.rises - before, 250000);
    /* 250,000 periods of 4772 ticks are 999.847... s; not one ns of it got lost. */
    assert_true(f.time.now == ns_of_tick(tick + 250000 * 4772ull, PIT_HZ));
    poll_at(&f, f.time.now + 1000);
    assert_int_equal(f.irq0.rises - before, 250000); /* early polls do nothing */
}

static void test_late_polls_coalesce_in_phase(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 3, 1000);
    unsigned before = f.irq0.rises;
    uint64_t first = deadline(&f), tick = ticks_at(first, PIT_HZ);
    poll_at(&f, first + 10 * SECOND);
    assert_int_equal(f.irq0.rises - before, 1);
    uint64_t next = deadline(&f);
    assert_true(next > f.time.now && next - f.time.now <= ns_of_tick(1000, PIT_HZ));
    assert_int_equal((ticks_at(next, PIT_HZ) - tick) % 1000, 0);
}

static void test_one_shots_fire_once(void **unused)
{
    static const unsigned modes[] = {0, 4};

    (void)unused;
    for (unsigned i = 0; i < 2; i++) {
        struct fixture f;
        make(&f);
        program(&f, 0, modes[i], 100);
        unsigned before = f.irq0.rises;
        uint64_t written = ticks_at(f.time.now, PIT_HZ);
        /* OUT rises N + 1 clocks after the write; the strobe of mode 4 ends one later. */
        assert_true(deadline(&f) == ns_of_tick(written + 101 + i, PIT_HZ));
        poll_at(&f, deadline(&f) - 1);
        assert_int_equal(f.irq0.rises - before, 0);
        poll_at(&f, f.time.now + 1);
        assert_int_equal(f.irq0.rises - before, 1);
        assert_true(deadline(&f) == NEVER);
        pass(&f, 1000000);
        assert_int_equal(f.irq0.rises - before, 1);
        /* Only the count is written to start again, as Linux does. */
        write_port(&f, 0x40, 50);
        write_port(&f, 0x40, 0);
        assert_true(deadline(&f) != NEVER);
        pass(&f, 52);
        assert_int_equal(f.irq0.rises - before, 2);
    }
}

static void test_rewritten_one_shot_starts_anew(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 4, 100);
    unsigned before = f.irq0.rises;
    pass(&f, 90);
    write_port(&f, 0x40, 100);
    write_port(&f, 0x40, 0);
    pass(&f, 90);
    assert_int_equal(f.irq0.rises - before, 0);
    pass(&f, 12);
    assert_int_equal(f.irq0.rises - before, 1);
}

static void test_new_period_after_the_running_one(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 2, 1000);
    uint64_t first = deadline(&f), tick = ticks_at(first, PIT_HZ);
    pass(&f, 500);
    write_port(&f, 0x40, 200);
    write_port(&f, 0x40, 0);
    assert_int_equal(status(&f, 0) & 0x40, 0x40); /* null count */
    assert_true(deadline(&f) == first);
    poll_at(&f, first);
    assert_int_equal(status(&f, 0) & 0x40, 0);
    assert_true(deadline(&f) == ns_of_tick(tick + 200, PIT_HZ));
}

/* As Linux stops it: a count of 0, and the control word once more. */
static void test_no_count_is_on_its_way_behind_a_control_word(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 0, 0);
    write_port(&f, 0x43, 0x30);
    assert_int_equal(status(&f, 0) & 0x40, 0);
    assert_true(deadline(&f) == NEVER);
    write_port(&f, 0x40, 10);
    assert_int_equal(status(&f, 0) & 0x40, 0); /* nor behind half of one */
    write_port(&f, 0x40, 0);
    assert_int_equal(status(&f, 0) & 0x40, 0x40);
    pass(&f, 1);
    assert_int_equal(status(&f, 0) & 0x40, 0);
}

static void test_counts_can_be_read(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 2, 1000);
    pass(&f, 1);
    assert_int_equal(latched_count(&f, 0), 1000);
    pass(&f, 999);
    assert_int_equal(latched_count(&f, 0), 1);
    pass(&f, 1);
    assert_int_equal(latched_count(&f, 0), 1000);

    write_port(&f, 0x43, 0x00); /* a latched count stands still, also when latched again */
    pass(&f, 10);
    write_port(&f, 0x43, 0x00);
    assert_int_equal(read_port(&f, 0x40) | read_port(&f, 0x40) << 8, 1000);
    assert_int_equal(read_port(&f, 0x40), 990 & 0xff);
    assert_int_equal(read_port(&f, 0x40), 990 >> 8);

    program(&f, 0, 3, 1001); /* odd: by two from 1000, longer high than low */
    pass(&f, 1);
    assert_int_equal(latched_count(&f, 0), 1000);
    pass(&f, 500);
    assert_int_equal(latched_count(&f, 0), 0);
    assert_int_equal(status(&f, 0), 0x80 | 0x30 | 3 << 1);
    pass(&f, 1);
    assert_int_equal(latched_count(&f, 0), 1000);
    assert_int_equal(status(&f, 0), 0x30 | 3 << 1);

    program(&f, 0, 0, 3); /* goes on below zero */
    pass(&f, 1 + 5);
    assert_int_equal(latched_count(&f, 0), 0xfffe);
    program(&f, 0, 2, 0); /* 0 stands for 65536 */
    pass(&f, 1 + 0xffff);
    assert_int_equal(latched_count(&f, 0), 1);
}

static void test_byte_access_and_bcd(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    write_port(&f, 0x43, 0x14); /* low byte only */
    write_port(&f, 0x40, 100);
    pass(&f, 1 + 10);
    assert_int_equal(read_port(&f, 0x40), 90);
    assert_int_equal(read_port(&f, 0x40), 90);
    write_port(&f, 0x43, 0x24); /* high byte only */
    write_port(&f, 0x40, 2);
    pass(&f, 1 + 1);
    assert_int_equal(read_port(&f, 0x40), 1);
    write_port(&f, 0x43, 0x35); /* BCD */
    write_port(&f, 0x40, 0x00);
    write_port(&f, 0x40, 0x10); /* 1000 */
    pass(&f, 1 + 1);
    assert_int_equal(latched_count(&f, 0), 0x0999);
    pass(&f, 999);
    assert_int_equal(latched_count(&f, 0), 0x1000);
}

static void test_read_back_latches_both(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 2, 1000);
    program(&f, 2, 0, 77);
    write_port(&f, 0x43, 0xc0 | 2 | 8);
    pass(&f, 300);
    assert_int_equal(read_port(&f, 0x40), 0x80 | 0x40 | 0x30 | 2 << 1); /* status first */
    assert_int_equal(read_port(&f, 0x40) | read_port(&f, 0x40) << 8, 1000);
    write_port(&f, 0x61, 0x01);
    pass(&f, 300);
    write_port(&f, 0x43, 0xe8);                  /* a status that nobody has read stays */
    assert_int_equal(read_port(&f, 0x42), 0x30); /* its gate was off: loaded, OUT low */
    assert_int_equal(read_port(&f, 0x42), 77);
}

static void test_first_half_of_a_count_stops_mode_0(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 0, 100);
    pass(&f, 200);
    assert_true(f.irq0.level);
    write_port(&f, 0x40, 10);
    assert_false(f.irq0.level);
    assert_true(deadline(&f) == NEVER);
    write_port(&f, 0x40, 0);
    pass(&f, 11);
    assert_true(f.irq0.level);
}

static void test_late_interrupt_survives_reading(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 0, 3, 1000);
    pass(&f, 1001 + 700); /* OUT is low again */
    assert_true(f.irq0.level);
    latched_count(&f, 0);
    assert_true(f.irq0.level);
    write_port(&f, 0x40, 0xe8); /* nor does a new count take it back */
    write_port(&f, 0x40, 0x03);
    assert_true(f.irq0.level);
}

static void test_channel_2_and_its_gate(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    write_port(&f, 0x61, 0x00);
    program(&f, 2, 0, 100);
    pass(&f, 1000);
    assert_int_equal(read_port(&f, 0x61) & 0x2f, 0); /* gate off: nothing counts */
    write_port(&f, 0x61, 0x01);
    pass(&f, 60);
    write_port(&f, 0x61, 0x02); /* pause */
    assert_int_equal(read_port(&f, 0x61) & 0x2f, 0x02);
    unsigned paused = latched_count(&f, 2);
    assert_true(paused > 35 && paused < 45);
    pass(&f, 1000);
    assert_int_equal(latched_count(&f, 2), paused);
    write_port(&f, 0x61, 0x01);
    pass(&f, paused);
    assert_int_equal(read_port(&f, 0x61) & 0x2f, 0x01);
    pass(&f, 1);
    assert_int_equal(read_port(&f, 0x61) & 0x2f, 0x21);
    assert_int_equal(f.irq0.rises, 0); /* never channel 0's business */
}

static void test_gate_triggers_channel_2(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    program(&f, 2, 1, 100); /* one-shot */
    pass(&f, 1000);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    for (unsigned i = 0; i < 2; i++) {
        write_port(&f, 0x61, 0x01);
        pass(&f, 100);
        assert_int_equal(read_port(&f, 0x61) & 0x20, 0);
        write_port(&f, 0x61, 0x00); /* a falling gate means nothing here */
        pass(&f, 1);
        assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    }
    program(&f, 2, 5, 100); /* strobe */
    write_port(&f, 0x61, 0x01);
    pass(&f, 100);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    pass(&f, 1);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0);
    pass(&f, 1);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    program(&f, 2, 3, 100); /* square wave: a rising gate starts a period */
    pass(&f, 30);
    write_port(&f, 0x61, 0x00);
    pass(&f, 1234);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    write_port(&f, 0x61, 0x01);
    pass(&f, 50);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0x20);
    pass(&f, 1);
    assert_int_equal(read_port(&f, 0x61) & 0x20, 0);
}

static void test_refresh_bit_toggles(void **unused)
{
    struct fixture f;
    unsigned changes = 0, last = 0;

    (void)unused;
    make(&f);
    for (unsigned i = 0; i < 180; i++) {
        unsigned now = read_port(&f, 0x61) & 0x10;
        changes += now != last;
        last = now;
        pass(&f, 1);
    }
    assert_in_range(changes, 9, 11);
}

static void test_state(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make(&f);
    make(&other);
    program(&f, 0, 2, 1000);
    program(&f, 2, 3, 500);
    write_port(&f, 0x61, 0x03);
    pass(&f, 1500);
    write_port(&f, 0x43, 0x00);
    read_port(&f, 0x40);
    write_port(&f, 0x42, 7);
    other.time = f.time;
    check_round_trip(&f.pit.dev, &other.pit.dev);
    assert_true(other.irq0.level);
    assert_true(deadline(&f) == deadline(&other));
    assert_int_equal(read_port(&f, 0x40), read_port(&other, 0x40));
    restore_garbage(&f.pit.dev, &other.pit.dev, &f.time);
}

static void test_rough_use(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    use_roughly(&f.pit.dev, &f.pio, &f.time, 0x3e, 0x45);
    use_roughly(&f.pit.dev, &f.pio, &f.time, 0x60, 0x62);
    f.time.now = UINT64_MAX; /* the end of time, 584 years on */
    f.pit.dev.ops->poll(&f.pit.dev, f.time.now);
    exercise(&f.pit.dev, f.time.now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ticks_do_not_drift),
        cmocka_unit_test(test_rate_generator_keeps_its_rate),
        cmocka_unit_test(test_late_polls_coalesce_in_phase),
        cmocka_unit_test(test_one_shots_fire_once),
        cmocka_unit_test(test_rewritten_one_shot_starts_anew),
        cmocka_unit_test(test_new_period_after_the_running_one),
        cmocka_unit_test(test_no_count_is_on_its_way_behind_a_control_word),
        cmocka_unit_test(test_counts_can_be_read),
        cmocka_unit_test(test_byte_access_and_bcd),
        cmocka_unit_test(test_read_back_latches_both),
        cmocka_unit_test(test_first_half_of_a_count_stops_mode_0),
        cmocka_unit_test(test_late_interrupt_survives_reading),
        cmocka_unit_test(test_channel_2_and_its_gate),
        cmocka_unit_test(test_gate_triggers_channel_2),
        cmocka_unit_test(test_refresh_bit_toggles),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
