#include "devices/i8042.h"

#define STATUS_NOBODY_HOME  0xfd
#define COMMAND_PULSE_RESET 0xfe
#define PORT_A_RESET        0x01
#define PORT_A_A20          0x02

/* Every range here is one port wide, so offset is 0 and size 1. */
static uint64_t data_in(void *dev, uint64_t offset, unsigned size)
{
    (void)dev;
    (void)offset;
    (void)size;
    return 0;
}

static void data_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    (void)dev;
    (void)offset;
    (void)size;
    (void)value;
}

static uint64_t status_in(void *dev, uint64_t offset, unsigned size)
{
    (void)dev;
    (void)offset;
    (void)size;
    return STATUS_NOBODY_HOME;
}

static void command_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct i8042 *i8042 = dev;

    (void)offset;
    (void)size;
    if (value == COMMAND_PULSE_RESET)
        machine_request_send(&i8042->requests, MACHINE_RESET);
}

static uint64_t port_a_in(void *dev, uint64_t offset, unsigned size)
{
    const struct i8042 *i8042 = dev;

    (void)offset;
    (void)size;
    return i8042->a20 ? PORT_A_A20 : 0;
}

static void port_a_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct i8042 *i8042 = dev;

    (void)offset;
    (void)size;
    i8042->a20 = value & PORT_A_A20;
    if (value & PORT_A_RESET)
        machine_request_send(&i8042->requests, MACHINE_RESET);
}

int i8042_attach(struct i8042 *dev, struct bus *pio, struct err *e)
{
    static const struct bus_ops data = {data_in, data_out};
    static const struct bus_ops command = {status_in, command_out};
    static const struct bus_ops port_a = {port_a_in, port_a_out};
    const struct bus_range ranges[] = {
        {.base = 0x60, .size = 1, .ops = &data, .dev = dev, .name = "i8042 data"},
        {.base = 0x64, .size = 1, .ops = &command, .dev = dev, .name = "i8042 command"},
        {.base = 0x92, .size = 1, .ops = &port_a, .dev = dev, .name = "port a"},
    };

    for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
        if (bus_add(pio, &ranges[i], e))
            return -1;
    return 0;
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct i8042 *i8042 = (const struct i8042 *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, i8042->a20);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct i8042 *i8042 = (struct i8042 *)dev;
    uint8_t version = cursor_u8(in), a20 = cursor_u8(in);
    bool good = !in->bad && version == STATE_VERSION && a20 <= 1;

    i8042->a20 = good ? a20 : true;
    return good ? 0 : -1;
}

static const struct device_ops i8042_ops = {.name = "i8042", .save = save, .restore = restore};

void i8042_init(struct i8042 *dev, struct machine_request_pin requests)
{
    *dev = (struct i8042){.dev.ops = &i8042_ops, .requests = requests, .a20 = true};
}
