#include "devices/mark_port.h"

#include "base/text.h"

static void complete(struct mark_port *port)
{
    while (port->len && (port->text[port->len - 1] == ' ' || port->text[port->len - 1] == '\r'))
        port->len--;
    port->text[port->len] = '\0';
    text_clean(port->text);
    if (port->len && port->pin.mark)
        port->pin.mark(port->pin.opaque, port->text);
    port->len = 0;
}

/* The range is one port wide, so offset is 0 and size 1. */
static uint64_t port_in(void *dev, uint64_t offset, unsigned size)
{
    (void)dev;
    (void)offset;
    (void)size;
    return MARK_PORT_PRESENT;
}

static void port_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct mark_port *port = dev;
    const char c = (char)value;

    (void)offset;
    (void)size;
    if (c == '\0' || c == '\n')
        complete(port);
    else if (port->len < MARK_MAX)
        port->text[port->len++] = c;
}

int mark_port_attach(struct mark_port *port, struct bus *pio, struct err *e)
{
    static const struct bus_ops ops = {port_in, port_out};
    const struct bus_range range = {
        .base = MARK_PORT, .size = 1, .ops = &ops, .dev = port, .name = "marks"};

    return bus_add(pio, &range, e);
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct mark_port *port = (const struct mark_port *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, port->len);
    bytes_put(out, port->text, port->len);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct mark_port *port = (struct mark_port *)dev;
    const uint8_t version = cursor_u8(in), len = cursor_u8(in);
    const bool good = !in->bad && version == STATE_VERSION && len <= MARK_MAX;

    port->len = good ? len : 0;
    cursor_get(in, port->text, port->len);
    if (!in->bad)
        return good ? 0 : -1;
    port->len = 0;
    return -1;
}

static const struct device_ops mark_port_ops = {.name = "marks", .save = save, .restore = restore};

void mark_port_init(struct mark_port *port, struct mark_pin pin)
{
    *port = (struct mark_port){.dev.ops = &mark_port_ops, .pin = pin};
}
