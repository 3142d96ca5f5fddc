#include "tests/unit/devices/legacy_test.h"

#include "devices/irqchip.h"
#include "tests/unit/random.h"

struct fixture {
    struct irqchip chip;
    struct bus pio;
};

static void write_port(struct fixture *f, unsigned port, unsigned value)
{
    bus_write(&f->pio, port, 1, value);
}

static unsigned read_port(struct fixture *f, unsigned port)
{
    return (unsigned)bus_read(&f->pio, port, 1);
}

/* As Linux sets them up: vectors 0x30 and 0x38, everything unmasked. */
static void program(struct fixture *f, unsigned icw4)
{
    const unsigned words[][2] = {{0x20, 0x11}, {0x21, 0x30}, {0x21, 4}, {0x21, icw4},
                                 {0xa0, 0x11}, {0xa1, 0x38}, {0xa1, 2}, {0xa1, icw4}};

    for (unsigned i = 0; i < 8; i++)
        write_port(f, words[i][0], words[i][1]);
    write_port(f, 0x21, 0);
    write_port(f, 0xa1, 0);
}

static void make(struct fixture *f, unsigned icw4)
{
    struct err e;

    *f = (struct fixture){0};
    irqchip_init(&f->chip);
    assert_int_equal(irqchip_attach(&f->chip, &f->pio, &e), 0);
    program(f, icw4);
}

static void set(struct fixture *f, unsigned irq, bool level)
{
    struct irq_pin pin = irqchip_pin(&f->chip, irq);

    irq_pin_set(&pin, level);
}

static void pulse(struct fixture *f, unsigned irq)
{
    set(f, irq, false);
    set(f, irq, true);
}

static void test_nothing_before_initialization(void **unused)
{
    struct fixture f;
    struct err e;

    (void)unused;
    f = (struct fixture){0};
    irqchip_init(&f.chip);
    assert_int_equal(irqchip_attach(&f.chip, &f.pio, &e), 0);
    set(&f, 0, true);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x20, 0x11);
    set(&f, 1, true);
    assert_false(irqchip_pending(&f.chip)); /* ICW2 to ICW4 are still to come */
}

static void test_edge_is_delivered_once(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    set(&f, 4, true);
    assert_true(irqchip_pending(&f.chip));
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x34);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x20, 0x20);
    assert_false(irqchip_pending(&f.chip)); /* still high, but no new edge */
    pulse(&f, 4);
    assert_true(irqchip_pending(&f.chip));
    set(&f, 4, false); /* withdrawn */
    assert_false(irqchip_pending(&f.chip));
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x37); /* spurious */
    write_port(&f, 0x20, 0x0b);
    assert_int_equal(read_port(&f, 0x20), 0); /* and not in service */
}

static void test_level_is_delivered_while_it_lasts(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    bus_write(&f.pio, 0x4d0, 2, 0xffff);
    assert_int_equal(bus_read(&f.pio, 0x4d0, 2), 0xdef8); /* timer, RTC, FPU stay edges */
    set(&f, 11, true);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(irqchip_acknowledge(&f.chip), 0x3b);
        assert_false(irqchip_pending(&f.chip));
        write_port(&f, 0xa0, 0x63); /* specific ends, as Linux writes them */
        write_port(&f, 0x20, 0x62);
        assert_true(irqchip_pending(&f.chip));
    }
    set(&f, 11, false);
    assert_false(irqchip_pending(&f.chip));
}

static void test_priorities_nest(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    set(&f, 5, true);
    set(&f, 3, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x33);
    assert_false(irqchip_pending(&f.chip)); /* 5 waits for 3 */
    set(&f, 12, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x3c); /* the cascade ranks as IRQ 2 */
    set(&f, 14, true);
    assert_false(irqchip_pending(&f.chip));
    set(&f, 8, true);
    assert_false(irqchip_pending(&f.chip)); /* the master holds IR2 back: not specially nested */
    set(&f, 0, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x30);
    write_port(&f, 0x20, 0x0b);
    assert_int_equal(read_port(&f, 0x20), 0x0d);
    write_port(&f, 0x20, 0x20); /* ends 0 */
    write_port(&f, 0xa0, 0x20); /* ends 12 */
    write_port(&f, 0x20, 0x20); /* ends the cascade */
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x38);
    write_port(&f, 0xa0, 0x20);
    write_port(&f, 0x20, 0x20);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x3e);
    write_port(&f, 0xa0, 0x20);
    write_port(&f, 0x20, 0x20);
    write_port(&f, 0x20, 0x20); /* ends 3 */
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x35);
}

static void test_special_fully_nested_mode(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 0x11);
    set(&f, 12, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x3c);
    set(&f, 8, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x38);
    set(&f, 9, true);
    assert_false(irqchip_pending(&f.chip)); /* lower than 8 on the slave itself */
}

static void test_masks(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    write_port(&f, 0x21, 0xfb);
    write_port(&f, 0xa1, 0xfe);
    assert_int_equal(read_port(&f, 0x21), 0xfb);
    set(&f, 1, true);
    set(&f, 10, true);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x20, 0x0a);
    assert_int_equal(read_port(&f, 0x20), 0x02); /* requested all the same */
    set(&f, 8, true);
    assert_int_equal(read_port(&f, 0x20), 0x06); /* the slave's output is the master's IR2 */
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x38);
    write_port(&f, 0x21, 0xff);
    write_port(&f, 0xa0, 0x20);
    write_port(&f, 0x20, 0x20);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x21, 0xfd);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x31); /* the edge was kept */
}

static void test_special_mask_mode(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    set(&f, 3, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x33);
    set(&f, 6, true);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x20, 0x68);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x21, 0x08); /* 3, in service, masked: the lower ones may come */
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x36);
    write_port(&f, 0x20, 0x20); /* ends 6; masked 3 is left alone */
    write_port(&f, 0x20, 0x0b);
    assert_int_equal(read_port(&f, 0x20), 0x08);
}

static void test_rotation(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    write_port(&f, 0x20, 0xc4); /* IR4 lowest, IR5 highest */
    set(&f, 0, true);
    set(&f, 6, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x36);
    write_port(&f, 0x20, 0xa0); /* end and rotate: IR6 lowest */
    set(&f, 5, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x30);
    write_port(&f, 0x20, 0xe0); /* specific end of 0, which becomes lowest */
    pulse(&f, 0);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x35);
}

static void test_automatic_end_of_interrupt(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 3);
    set(&f, 9, true);
    set(&f, 1, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x31);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x39);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0x20, 0x80); /* rotate in this mode */
    pulse(&f, 3);
    pulse(&f, 4);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x33);
    pulse(&f, 3);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x34);
}

static void test_poll_command(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    write_port(&f, 0xa0, 0x0c);
    assert_int_equal(read_port(&f, 0xa0), 0);
    set(&f, 13, true);
    write_port(&f, 0xa0, 0x0c);
    assert_int_equal(read_port(&f, 0xa0), 0x85);
    assert_false(irqchip_pending(&f.chip));
    write_port(&f, 0xa0, 0x0b);
    assert_int_equal(read_port(&f, 0xa0), 0x20);
}

static void test_cascade_input_leads_nowhere(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f, 1);
    set(&f, 2, true);
    assert_false(irqchip_pending(&f.chip));
}

static void test_state(void **unused)
{
    struct fixture f;
    struct irqchip other;
    struct fake_time time = fake_time_at(0, 0);

    (void)unused;
    make(&f, 0x11);
    bus_write(&f.pio, 0x4d0, 2, 0x0c20);
    set(&f, 5, true);
    set(&f, 12, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), 0x3c);
    irqchip_init(&other);
    check_round_trip(&f.chip.dev, &other.dev);
    set(&f, 1, true);
    irqchip_set(&other, 1, true);
    assert_int_equal(irqchip_acknowledge(&f.chip), irqchip_acknowledge(&other));
    restore_garbage(&f.chip.dev, &other.dev, &time);
}

static void test_rough_use(void **unused)
{
    static const unsigned ports[][2] = {{0x1e, 0x23}, {0x9e, 0xa3}, {0x4ce, 0x4d3}};
    struct fixture f;
    uint64_t random = 88172645463325252ull;
    unsigned delivered = 0;

    (void)unused;
    make(&f, 1);
    for (unsigned i = 0; i < rounds(1000000); i++) {
        uint64_t r = next_random(&random);
        const unsigned *range = ports[r % 3];
        unsigned port = range[0] + (r >> 8) % (range[1] - range[0] + 1);
        if (r >> 16 & 1)
            bus_write(&f.pio, port, 1u << (r >> 17) % 3, r >> 19);
        else
            bus_read(&f.pio, port, 1u << (r >> 17) % 3);
        set(&f, r >> 32 & 15, r >> 36 & 1);
        if (irqchip_pending(&f.chip))
            delivered++;
        if (r >> 40 & 1)
            irqchip_acknowledge(&f.chip);
    }
    assert_true(delivered > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_initialization),
        cmocka_unit_test(test_edge_is_delivered_once),
        cmocka_unit_test(test_level_is_delivered_while_it_lasts),
        cmocka_unit_test(test_priorities_nest),
        cmocka_unit_test(test_special_fully_nested_mode),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_special_mask_mode),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_automatic_end_of_interrupt),
        cmocka_unit_test(test_poll_command),
        cmocka_unit_test(test_cascade_input_leads_nowhere),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_rough_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
