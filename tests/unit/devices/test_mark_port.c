#include "tests/unit/devices/legacy_test.h"

#include <stdio.h>
#include <string.h>

#include "devices/mark_port.h"

struct fixture {
    struct mark_port port;
    struct bus pio;
    unsigned marks;
    char last[MARK_MAX + 1];
};

static void note(void *opaque, const char *text)
{
    struct fixture *f = opaque;

    f->marks++;
    snprintf(f->last, sizeof f->last, "%s", text);
}

static void make(struct fixture *f)
{
    struct err e;

    *f = (struct fixture){0};
    mark_port_init(&f->port, (struct mark_pin){note, f});
    assert_int_equal(mark_port_attach(&f->port, &f->pio, &e), 0);
}

static void put(struct fixture *f, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bus_write(&f->pio, MARK_PORT, 1, (uint8_t)text[i]);
}

static void test_text_ends_with_nul_or_line(void **unused)
{
    struct fixture f;

    (void)unused;
    make(&f);
    assert_int_equal(bus_read(&f.pio, MARK_PORT, 1), MARK_PORT_PRESENT);
    put(&f, "begin", 5);
    assert_int_equal(f.marks, 0);
    put(&f, "", 1);
    assert_int_equal(f.marks, 1);
    assert_string_equal(f.last, "begin");
    put(&f, "second one \r\n", 13);
    assert_int_equal(f.marks, 2);
    assert_string_equal(f.last, "second one");
    put(&f, "\n\n \n\0\r\n", 7); /* there is no empty one */
    assert_int_equal(f.marks, 2);
}

static void test_hostile_text(void **unused)
{
    struct fixture f;
    char wide[400];

    (void)unused;
    make(&f);
    put(&f, "\x1b[2J\xff\xc3\xa4\n", 8);
    assert_string_equal(f.last, "?[2J?\xc3\xa4");
    memset(wide, 'x', sizeof wide);
    put(&f, wide, sizeof wide);
    put(&f, "\n", 1);
    assert_int_equal(strlen(f.last), MARK_MAX);
    bus_write(&f.pio, MARK_PORT, 2, 'w'); /* not the port's width: nothing */
    put(&f, "ok\n", 3);
    assert_string_equal(f.last, "ok");
    f.port.pin.mark = NULL;
    put(&f, "nobody\n", 7);
    assert_int_equal(f.marks, 3);
}

static void test_state(void **unused)
{
    struct fixture f, other;
    struct fake_time time = fake_time_at(0, 0);

    (void)unused;
    make(&f);
    make(&other);
    put(&f, "half", 4);
    check_round_trip(&f.port.dev, &other.port.dev);
    put(&other, " and half\n", 10);
    assert_string_equal(other.last, "half and half");
    restore_garbage(&f.port.dev, &other.port.dev, &time);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_ends_with_nul_or_line),
        cmocka_unit_test(test_hostile_text),
        cmocka_unit_test(test_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
