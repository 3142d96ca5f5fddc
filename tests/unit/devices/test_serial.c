#include "tests/unit/devices/legacy_test.h"

#include "devices/serial.h"

struct fixture {
    struct serial serial;
    struct bus pio;
    struct fake_wire irq;
    uint8_t sent[64];
    unsigned sent_count;
};

static void tx(void *opaque, uint8_t byte)
{
    struct fixture *f = opaque;

    f->sent[f->sent_count++ % sizeof(f->sent)] = byte;
}

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){0};
    serial_init(&f->serial, fake_pin(&f->irq), tx, f);
    assert_int_equal(serial_attach(&f->serial, &f->pio, SERIAL_COM1_PORT, &e), 0);
}

static void out(struct fixture *f, unsigned reg, unsigned value)
{
    bus_write(&f->pio, SERIAL_COM1_PORT + reg, 1, value);
}

static unsigned in(struct fixture *f, unsigned reg)
{
    return (unsigned)bus_read(&f->pio, SERIAL_COM1_PORT + reg, 1);
}

static size_t receive(struct fixture *f, const char *text)
{
    return serial_receive(&f->serial, (const uint8_t *)text, strlen(text));
}

static void test_sends(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(in(&f, 5), 0x60);
    out(&f, 0, 'h');
    out(&f, 0, 'i');
    assert_int_equal(f.sent_count, 2);
    assert_memory_equal(f.sent, "hi", 2);
    assert_int_equal(in(&f, 5), 0x60);
}

static void test_divisor_latch_hides_data_and_ier(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    out(&f, 1, 0xff);
    assert_int_equal(in(&f, 1), 0x0f);
    out(&f, 3, 0x83);
    out(&f, 0, 1);
    out(&f, 1, 2);
    assert_int_equal(in(&f, 0), 1);
    assert_int_equal(in(&f, 1), 2);
    out(&f, 3, 0x03);
    assert_int_equal(in(&f, 3), 0x03);
    assert_int_equal(in(&f, 1), 0x0f);
    assert_int_equal(f.sent_count, 0);
    out(&f, 7, 0xa5);
    assert_int_equal(in(&f, 7), 0xa5);
}

static void test_transmitter_empty_interrupt(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    out(&f, 1, 0x02);
    assert_false(f.irq.level); /* OUT2 gates it */
    out(&f, 4, 0x08);
    assert_true(f.irq.level); /* enabled while empty */
    assert_int_equal(in(&f, 2), 0x02);
    assert_false(f.irq.level); /* reading took it back */
    assert_int_equal(in(&f, 2), 0x01);
    out(&f, 0, 'x');
    assert_true(f.irq.level);
    unsigned rises = f.irq.rises;
    out(&f, 0, 'y');
    assert_int_equal(f.irq.rises, rises + 1); /* a new edge for each byte */
    out(&f, 1, 0x00);
    assert_false(f.irq.level);
    assert_int_equal(in(&f, 2), 0x01);
    out(&f, 1, 0x02); /* Linux tests that it comes again */
    assert_int_equal(in(&f, 2), 0x02);
    out(&f, 1, 0x02); /* but not when it was enabled already */
    assert_int_equal(in(&f, 2), 0x01);
}

static void test_receives(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    out(&f, 4, 0x08);
    out(&f, 1, 0x01);
    assert_int_equal(serial_room(&f.serial), 1); /* no FIFO yet */
    assert_int_equal(receive(&f, "ab"), 1);
    assert_int_equal(receive(&f, "b"), 0);
    assert_true(f.irq.level);
    assert_int_equal(in(&f, 2), 0x04);
    assert_int_equal(in(&f, 5), 0x61);
    assert_int_equal(in(&f, 0), 'a');
    assert_false(f.irq.level);
    assert_int_equal(in(&f, 5), 0x60);
    assert_int_equal(in(&f, 0), 0); /* nothing there */

    out(&f, 2, 0x41); /* FIFO, trigger level 4 */
    assert_int_equal(receive(&f, "0123456789abcdefgh"), 16);
    assert_int_equal(serial_room(&f.serial), 0);
    assert_int_equal(in(&f, 2), 0xc4);
    for (unsigned i = 0; i < 13; i++)
        assert_int_equal(in(&f, 0), "0123456789abc"[i]);
    assert_int_equal(in(&f, 2), 0xcc); /* the rest as a timeout */
    assert_true(f.irq.level);
    out(&f, 2, 0x43); /* clears them */
    assert_false(f.irq.level);
    assert_int_equal(in(&f, 5), 0x60);
    assert_int_equal(receive(&f, "z"), 1);
    out(&f, 2, 0x00); /* so does switching the FIFO off */
    assert_int_equal(in(&f, 5), 0x60);
}

static void test_interrupts_have_priorities(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    out(&f, 4, 0x18); /* loopback: what is sent comes back */
    out(&f, 1, 0x0f);
    out(&f, 0, 'a');
    out(&f, 0, 'b'); /* overrun */
    assert_int_equal(in(&f, 2), 0x06);
    assert_false(f.irq.level); /* loopback cuts the interrupt off */
    out(&f, 4, 0x08);
    assert_true(f.irq.level);
    assert_int_equal(in(&f, 5), 0x63);
    assert_int_equal(in(&f, 2), 0x04);
    assert_int_equal(in(&f, 0), 'a');
    assert_int_equal(in(&f, 2), 0x02);
    assert_int_equal(in(&f, 2), 0x00);
    in(&f, 6);
    assert_int_equal(in(&f, 2), 0x01);
    assert_false(f.irq.level);
}

/* The steps by which Linux's 8250 driver recognizes a 16550A. */
static void test_linux_finds_a_16550a(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    out(&f, 1, 0x00);
    assert_int_equal(in(&f, 1) & 0x0f, 0);
    out(&f, 1, 0x0f);
    assert_int_equal(in(&f, 1) & 0x0f, 0x0f);
    out(&f, 1, 0x00);
    out(&f, 4, 0x1a);
    assert_int_equal(in(&f, 6) & 0xf0, 0x90);
    out(&f, 4, 0x00);
    assert_int_equal(in(&f, 6) & 0xf0, 0xb0);
    out(&f, 3, 0xbf); /* no extended features register */
    out(&f, 2, 0x01);
    out(&f, 3, 0x00);
    assert_int_equal(in(&f, 2) >> 6, 3);
    out(&f, 3, 0x80);
    assert_int_not_equal(in(&f, 2), 0);
    out(&f, 2, 0x21); /* no 64-byte FIFO */
    assert_int_equal(in(&f, 2) >> 5, 6);
    out(&f, 3, 0x00);
    out(&f, 1, 0x40); /* no XScale UART enable */
    assert_int_equal(in(&f, 1), 0);
    out(&f, 2, 0x00);
    assert_int_equal(in(&f, 2) >> 6, 0);
}

static void test_modem_deltas(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(in(&f, 6), 0xb0);
    out(&f, 4, 0x14); /* loopback with OUT1: CTS, DSR and carrier fall, ring rises */
    assert_int_equal(in(&f, 6), 0x40 | 0x0b);
    assert_int_equal(in(&f, 6), 0x40);
    out(&f, 4, 0x10); /* ring falls, which counts */
    assert_int_equal(in(&f, 6), 0x04);
    assert_int_equal(receive(&f, "x"), 0); /* the line is cut off */
}

static void test_state(void **unused)
{
    struct fixture f, other;

    (void)unused;
    make(&f);
    make(&other);
    out(&f, 3, 0x03);
    out(&f, 4, 0x0b);
    out(&f, 2, 0xc1);
    out(&f, 1, 0x03);
    receive(&f, "hello");
    in(&f, 0);
    check_round_trip(&f.serial.dev, &other.serial.dev);
    assert_true(other.irq.level);
    assert_int_equal(in(&other, 2), 0xcc);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(in(&other, 0), "ello"[i]);
    assert_int_equal(in(&other, 2), 0xc2);
    struct fake_time time = fake_time_at(0, 0);
    restore_garbage(&f.serial.dev, &other.serial.dev, &time);
    assert_true(serial_room(&f.serial) <= SERIAL_FIFO_BYTES);
}

static void test_rough_use(void **unused)
{
    struct fixture f;
    struct fake_time time = fake_time_at(0, 0);

    (void)unused;
    make(&f);
    use_roughly(&f.serial.dev, &f.pio, &time, SERIAL_COM1_PORT - 1, SERIAL_COM1_PORT + 8);
    for (unsigned i = 0; i < 100000; i++) {
        uint8_t data[20] = {0};
        out(&f, i * 7 % 8, i * 2654435761u >> 24);
        assert_true(serial_receive(&f.serial, data, i % 20) <= SERIAL_FIFO_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sends),
        cmocka_unit_test(test_divisor_latch_hides_data_and_ier),
        cmocka_unit_test(test_transmitter_empty_interrupt),
        cmocka_unit_test(test_receives),
        cmocka_unit_test(test_interrupts_have_priorities),
        cmocka_unit_test(test_linux_finds_a_16550a),
        cmocka_unit_test(test_modem_deltas),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
