#include "devices/pit.h"

#include "devices/byte_ports.h"
#include "devices/clock_ticks.h"
#include "devices/pit_channel.h"

#define PORT_B_GATE    0x01
#define PORT_B_WRITTEN 0x0f
#define PORT_B_REFRESH 0x10
#define PORT_B_OUT     0x20
/* DRAM refresh, which bit 4 of port B shows, came every 15 us from channel 1: 18 ticks. */
#define REFRESH_TICKS 18

static uint64_t now_tick(const struct pit *pit)
{
    return ticks_at(pit->time->now(pit->time), PIT_HZ);
}

static void set_line(struct pit *pit, bool level)
{
    pit->line = level;
    irq_pin_set(&pit->irq, level);
}

/*
 * Work out what happened up to tick. However many periods passed unseen, they make one edge: a
 * late timer does not deliver a burst, and the next edge is again where it belongs.
 */
static uint64_t advance(struct pit *pit, uint64_t tick)
{
    if (tick < pit->seen)
        return pit->seen;
    if (pit_channel_next_rise(&pit->channel[0], pit->seen) <= tick) {
        set_line(pit, false);
        set_line(pit, true);
    }
    pit->seen = tick;
    for (unsigned i = 0; i < 3; i++)
        pit_channel_settle(&pit->channel[i], tick);
    return tick;
}

static uint64_t deadline(const struct device *dev)
{
    const struct pit *pit = (const struct pit *)dev;
    uint64_t rise = pit_channel_next_rise(&pit->channel[0], pit->seen);

    return rise == NEVER ? NEVER : ns_of_tick(rise, PIT_HZ);
}

static void poll(struct device *dev, uint64_t now)
{
    advance((struct pit *)dev, ticks_at(now, PIT_HZ));
}

/* Read-back command: latch status and count of several channels at once. */
static void read_back(struct pit *pit, uint8_t word, uint64_t tick)
{
    for (unsigned i = 0; i < 3; i++) {
        if (!(word & 2u << i))
            continue;
        if (!(word & 0x20))
            pit_channel_latch_count(&pit->channel[i], tick);
        if (!(word & 0x10))
            pit_channel_latch_status(&pit->channel[i], tick);
    }
}

/*
 * A control word takes OUT low in mode 0 and high in the others; so does a count in mode 0. The low
 * parts of the other modes are left out: they would withdraw an interrupt that came late.
 */
static void follow_out(struct pit *pit, uint64_t tick)
{
    const struct pit_channel *channel = &pit->channel[0];
    bool level = channel->mode != 0 || pit_channel_out(channel, tick);

    if (level != pit->line)
        set_line(pit, level);
}

static void write_port(void *dev, unsigned port, uint8_t value)
{
    struct pit *pit = dev;
    uint64_t tick = advance(pit, now_tick(pit));
    unsigned selected = port < 3 ? port : value >> 6;

    if (selected == 3) {
        read_back(pit, value, tick);
        return;
    }
    struct pit_channel *channel = &pit->channel[selected];
    if (port == 3 && !(value & 0x30)) {
        pit_channel_latch_count(channel, tick);
        return;
    }
    if (port == 3)
        pit_channel_control(channel, value);
    else
        pit_channel_write(channel, value, tick);
    if (selected == 0)
        follow_out(pit, tick);
}

static uint8_t read_port(void *dev, unsigned port)
{
    struct pit *pit = dev;
    uint64_t tick = advance(pit, now_tick(pit));

    if (port == 3) /* the control word cannot be read */
        return 0xff;
    return pit_channel_read(&pit->channel[port], tick);
}

static uint64_t timer_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_port, dev, offset, size);
}

static void timer_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_port, dev, offset, size, value);
}

static uint64_t port_b_in(void *dev, uint64_t offset, unsigned size)
{
    struct pit *pit = dev;
    uint64_t tick = advance(pit, now_tick(pit));

    (void)offset;
    (void)size;
    return pit->port_b | (tick / REFRESH_TICKS & 1 ? PORT_B_REFRESH : 0u) |
           (pit_channel_out(&pit->channel[2], tick) ? PORT_B_OUT : 0u);
}

static void port_b_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct pit *pit = dev;
    uint64_t tick = advance(pit, now_tick(pit));

    (void)offset;
    (void)size;
    pit->port_b = value & PORT_B_WRITTEN;
    pit_channel_set_gate(&pit->channel[2], value & PORT_B_GATE, tick);
}

int pit_attach(struct pit *pit, struct bus *pio, struct err *e)
{
    static const struct bus_ops timer = {timer_in, timer_out};
    static const struct bus_ops port_b = {port_b_in, port_b_out};
    const struct bus_range ranges[] = {
        {.base = 0x40, .size = 4, .ops = &timer, .dev = pit, .name = "pit"},
        {.base = 0x61, .size = 1, .ops = &port_b, .dev = pit, .name = "port b"},
    };

    for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
        if (bus_add(pio, &ranges[i], e))
            return -1;
    return 0;
}

static void reset(struct pit *pit)
{
    for (unsigned i = 0; i < 3; i++) {
        pit->channel[i].gate = i != 2;
        pit_channel_control(&pit->channel[i], 0x30);
    }
    pit->port_b = 0;
    pit->seen = now_tick(pit);
    set_line(pit, false);
}

#define STATE_VERSION 1

static void save_channel(const struct pit_channel *c, struct bytes *out)
{
    bytes_put_u8(out, c->mode);
    bytes_put_u8(out, c->access);
    bytes_put_u16(out, (uint16_t)(c->bcd | c->gate << 1 | c->loaded << 2 | c->held << 3 |
                                  c->next_waits << 4 | c->write_high << 5 | c->read_high << 6 |
                                  c->status_latched << 7));
    bytes_put_u32(out, c->count);
    bytes_put_u64(out, c->start);
    bytes_put_u64(out, c->passed);
    bytes_put_u32(out, c->next_count);
    bytes_put_u64(out, c->switch_at);
    bytes_put_u8(out, c->written_low);
    bytes_put_u8(out, c->latched_status);
    bytes_put_u8(out, c->latched_bytes);
    bytes_put_u16(out, c->latched_count);
}

static bool restore_channel(struct pit_channel *c, struct cursor *in)
{
    c->mode = cursor_u8(in);
    c->access = cursor_u8(in);
    uint16_t flags = cursor_u16(in);
    c->bcd = flags & 0x01;
    c->gate = flags & 0x02;
    c->loaded = flags & 0x04;
    c->held = flags & 0x08;
    c->next_waits = flags & 0x10;
    c->write_high = flags & 0x20;
    c->read_high = flags & 0x40;
    c->status_latched = flags & 0x80;
    c->count = cursor_u32(in);
    c->start = cursor_u64(in);
    c->passed = cursor_u64(in);
    c->next_count = cursor_u32(in);
    c->switch_at = cursor_u64(in);
    c->written_low = cursor_u8(in);
    c->latched_status = cursor_u8(in);
    c->latched_bytes = cursor_u8(in);
    c->latched_count = cursor_u16(in);
    return !in->bad && flags <= 0xff && pit_channel_valid(c);
}

static void save(const struct device *dev, struct bytes *out)
{
    const struct pit *pit = (const struct pit *)dev;

    bytes_put_u8(out, STATE_VERSION);
    for (unsigned i = 0; i < 3; i++)
        save_channel(&pit->channel[i], out);
    bytes_put_u64(out, pit->seen);
    bytes_put_u8(out, pit->line);
    bytes_put_u8(out, pit->port_b);
}

static bool restore_all(struct pit *pit, struct cursor *in)
{
    if (cursor_u8(in) != STATE_VERSION)
        return false;
    for (unsigned i = 0; i < 3; i++)
        if (!restore_channel(&pit->channel[i], in))
            return false;
    uint64_t seen = cursor_u64(in);
    uint8_t line = cursor_u8(in), port_b = cursor_u8(in);
    /* The gates are wired, and nothing has been seen that is still to come. */
    if (in->bad || seen > now_tick(pit) || line > 1 || port_b & ~PORT_B_WRITTEN ||
        !pit->channel[0].gate || !pit->channel[1].gate ||
        pit->channel[2].gate != (port_b & PORT_B_GATE))
        return false;
    pit->seen = seen;
    pit->port_b = port_b;
    set_line(pit, line);
    return true;
}

static int restore(struct device *dev, struct cursor *in)
{
    struct pit *pit = (struct pit *)dev;

    if (restore_all(pit, in))
        return 0;
    reset(pit);
    return -1;
}

static const struct device_ops pit_ops = {
    .name = "pit", .deadline = deadline, .poll = poll, .save = save, .restore = restore};

void pit_init(struct pit *pit, struct irq_pin irq, struct device_time *time)
{
    *pit = (struct pit){.dev.ops = &pit_ops, .irq = irq, .time = time};
    reset(pit);
}
