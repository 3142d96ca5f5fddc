/* devices/command_device.c: boxes of a guest that may be hostile, and what the calls lead to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "devices/command_device.h"

#define PAGES 64u /* of guest memory */

static uint8_t memory[PAGES * COMMAND_PAGE];
static struct bus mmio;
static struct pci_bus pci;
static struct command_device device;
static const char *input; /* NULL: it has ended */
static uint8_t output[2][2 * COMMAND_DATA_MAX];
static size_t output_len[2];
static enum command_call noted;
static uint32_t noted_value;
static unsigned power_offs, writes; /* writes: of memory */
static bool has_reader;

static int mem_read(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    (void)dma;
    if (gpa > sizeof memory || len > sizeof memory - gpa)
        return -1;
    memcpy(data, memory + gpa, len);
    return 0;
}

static int mem_write(struct dma *dma, uint64_t gpa, const void *data, size_t len)
{
    (void)dma;
    if (gpa > sizeof memory || len > sizeof memory - gpa)
        return -1;
    memcpy(memory + gpa, data, len);
    writes++;
    return 0;
}

static int take(struct command_link *link, uint8_t *data, size_t len)
{
    (void)link;
    if (!input)
        return -1;
    const size_t n = strlen(input) < len ? strlen(input) : len;
    memcpy(data, input, n);
    input += n;
    return (int)n;
}

static bool put(struct command_link *link, bool is_error, const uint8_t *data, size_t len)
{
    (void)link;
    assert_true(output_len[is_error] + len <= sizeof output[0]);
    memcpy(output[is_error] + output_len[is_error], data, len);
    output_len[is_error] += len;
    return has_reader;
}

static void note(struct command_link *link, enum command_call call, uint32_t value)
{
    (void)link;
    noted = call;
    noted_value = value;
}

static void on_request(void *opaque, enum machine_request request)
{
    (void)opaque;
    power_offs += request == MACHINE_POWEROFF;
}

static unsigned route(unsigned slot, unsigned pin)
{
    (void)slot, (void)pin;
    return 5;
}

static struct dma dma = {.read = mem_read, .peek = mem_read, .write = mem_write};
static struct command_link link = {.take = take, .put = put, .note = note};

static int set_up(void **state)
{
    static const struct irq_pin pins[PCI_IRQS];
    struct err e;

    (void)state;
    memset(memory, 0, sizeof memory);
    memset(output_len, 0, sizeof output_len);
    power_offs = writes = 0;
    has_reader = true;
    noted = 0;
    mmio = (struct bus){0};
    pci_init(&pci, &mmio, pins, route, NULL, NULL);
    command_device_init(&device, &dma, &link, (struct machine_request_pin){on_request, NULL});
    return command_device_attach(&device, &pci, &e);
}

static struct command_box *box_at(uint32_t frame)
{
    return (struct command_box *)(void *)(memory + frame * COMMAND_PAGE);
}

static void ring(uint32_t frame)
{
    bus_write(&mmio, COMMAND_BAR + COMMAND_BOX, 4, frame);
}

static void test_output(void **state)
{
    struct command_box *box = box_at(1);

    (void)state;
    box->call = COMMAND_STDOUT;
    box->len = COMMAND_PAGE + 3;
    box->frame[0] = 7;
    box->frame[1] = 3;
    memset(memory + 7 * COMMAND_PAGE, 'a', COMMAND_PAGE);
    memcpy(memory + 3 * COMMAND_PAGE, "end", 3);
    ring(1);
    assert_int_equal(output_len[0], COMMAND_PAGE + 3);
    assert_memory_equal(output[0] + COMMAND_PAGE - 1, "aend", 4);
    box->call = COMMAND_STDERR;
    box->len = 1;
    ring(1);
    assert_int_equal(output_len[1], 1);
    assert_int_equal(output[1][0], 'a');
}

/* The guest hears it by a DMA, which is recorded, as it is a fact of the host's. */
static void test_reader_gone(void **state)
{
    struct command_box *box = box_at(1);

    (void)state;
    box->call = COMMAND_STDOUT;
    box->len = 10;
    box->frame[0] = 7;
    ring(1);
    assert_int_equal(box->len, 10);
    assert_int_equal(writes, 0);
    has_reader = false;
    ring(1);
    assert_int_equal(output_len[0], 20);
    assert_int_equal(box->len, COMMAND_OUTPUT_END);
    assert_int_equal(writes, 1);
    box->len = 10;
    device.link = NULL; /* nobody looks: that a reader has gone is not known */
    ring(1);
    assert_int_equal(box->len, 10);
}

static void test_input(void **state)
{
    struct command_box *box = box_at(2);

    (void)state;
    for (unsigned i = 0; i < COMMAND_PAGES; i++)
        box->frame[i] = 4 + i;
    box->call = COMMAND_STDIN;
    box->len = 4;
    input = "hello";
    ring(2);
    assert_int_equal(box->len, 4);
    assert_memory_equal(memory + 4 * COMMAND_PAGE, "hell", 4);
    box->len = 100;
    ring(2);
    assert_int_equal(box->len, 1);
    assert_false(device.waits);
    box->len = 100;
    ring(2);
    assert_int_equal(box->len, 0);
    assert_true(device.waits);
    input = NULL;
    box->len = 100;
    ring(2);
    assert_int_equal(box->len, COMMAND_INPUT_END);
    assert_false(device.waits);
}

static void test_hostile_boxes(void **state)
{
    struct command_box *box = box_at(1);

    (void)state;
    ring(UINT32_MAX); /* no memory */
    ring(PAGES);
    box->call = COMMAND_STDOUT;
    box->len = UINT32_MAX; /* as much as can be; all the box itself */
    for (unsigned i = 0; i < COMMAND_PAGES; i++)
        box->frame[i] = 1;
    ring(1);
    assert_int_equal(output_len[0], COMMAND_DATA_MAX);
    box->frame[5] = PAGES; /* nothing of it is output */
    ring(1);
    assert_int_equal(output_len[0], COMMAND_DATA_MAX);
    box->call = 77;
    ring(1);
    box->call = COMMAND_STDIN;
    box->frame[0] = UINT32_MAX;
    input = "hello";
    ring(1);
    assert_int_equal(output_len[0], COMMAND_DATA_MAX);
    bus_write(&mmio, COMMAND_BAR + COMMAND_BOX, 2, 1); /* no such registers */
    bus_write(&mmio, COMMAND_BAR + 100, 4, 1);
    bus_write(&mmio, COMMAND_BAR + COMMAND_CALL, 4, 0xff000000u);
    assert_int_equal(bus_read(&mmio, COMMAND_BAR, 4), 0);
    assert_int_equal(power_offs, 0);
}

static void test_calls(void **state)
{
    (void)state;
    bus_write(&mmio, COMMAND_BAR + COMMAND_CALL, 4, (uint32_t)COMMAND_BEGINS << COMMAND_CALL_SHIFT);
    assert_int_equal(noted, COMMAND_BEGINS);
    assert_int_equal(power_offs, 0);
    bus_write(&mmio, COMMAND_BAR + COMMAND_CALL, 4,
              (uint32_t)COMMAND_EXITED << COMMAND_CALL_SHIFT | 7);
    assert_int_equal(noted, COMMAND_EXITED);
    assert_int_equal(noted_value, 7);
    assert_int_equal(power_offs, 1);
}

static void test_state(void **state)
{
    struct bytes saved = {0};
    struct cursor in;

    (void)state;
    device.waits = true;
    device.dev.ops->save(&device.dev, &saved);
    device.waits = false;
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(device.dev.ops->restore(&device.dev, &in), 0);
    assert_true(device.waits);
    in = cursor_of(saved.data, saved.len - 1);
    assert_int_equal(device.dev.ops->restore(&device.dev, &in), -1);
    saved.data[saved.len - 1] = 2;
    in = cursor_of(saved.data, saved.len);
    assert_int_equal(device.dev.ops->restore(&device.dev, &in), -1);
    bytes_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_output, set_up),
        cmocka_unit_test_setup(test_reader_gone, set_up),
        cmocka_unit_test_setup(test_input, set_up),
        cmocka_unit_test_setup(test_hostile_boxes, set_up),
        cmocka_unit_test_setup(test_calls, set_up),
        cmocka_unit_test_setup(test_state, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
