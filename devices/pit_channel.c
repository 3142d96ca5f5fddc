#include "devices/pit_channel.h"

#define ACCESS_LOW  1
#define ACCESS_HIGH 2
#define ACCESS_BOTH 3

/* Ticks of a restored state may be anything; up to here their arithmetic cannot overflow. */
#define LAST_TICK (UINT64_MAX / 4)

static bool is_periodic(const struct pit_channel *c)
{
    return c->mode == 2 || c->mode == 3;
}

/* Modes 1 and 5 start at a rising gate, not when the count is written. */
static bool is_triggered(const struct pit_channel *c)
{
    return c->mode == 1 || c->mode == 5;
}

static uint64_t elapsed(const struct pit_channel *c, uint64_t tick)
{
    if (c->held)
        return c->passed;
    return tick > c->start ? tick - c->start : 0;
}

static uint32_t modulus(const struct pit_channel *c)
{
    return c->bcd ? 10000 : 0x10000;
}

/* In mode 3 an odd count is one tick longer high than low. */
static uint32_t high_ticks(uint32_t count)
{
    return (count + 1) / 2;
}

bool pit_channel_out(const struct pit_channel *c, uint64_t tick)
{
    if (!c->loaded)
        return c->mode != 0;
    uint64_t e = elapsed(c, tick);
    switch (c->mode) {
    case 0:
    case 1:
        return e >= c->count;
    case 2:
        return c->held || e % c->count != c->count - 1;
    case 3:
        return c->held || e % c->count < high_ticks(c->count);
    default:
        return e != c->count;
    }
}

uint64_t pit_channel_next_rise(const struct pit_channel *c, uint64_t after)
{
    if (!c->loaded || c->held)
        return NEVER;
    uint64_t e = elapsed(c, after);
    if (is_periodic(c))
        return c->start + (e / c->count + 1) * c->count;
    /* Modes 0 and 1 rise at the terminal count, 4 and 5 at the end of a strobe one tick long. */
    uint64_t rise = c->start + c->count + (c->mode >= 4);
    return rise > after ? rise : NEVER;
}

static void load(struct pit_channel *c, uint32_t count, uint64_t start)
{
    c->loaded = true;
    c->count = count;
    c->start = start;
    c->passed = 0;
    c->next_waits = false;
}

void pit_channel_settle(struct pit_channel *c, uint64_t tick)
{
    if (is_periodic(c) && c->next_waits && !c->held && tick >= c->switch_at)
        load(c, c->next_count, c->switch_at);
}

void pit_channel_set_gate(struct pit_channel *c, bool gate, uint64_t tick)
{
    if (gate == c->gate)
        return;
    c->gate = gate;
    if (is_triggered(c)) {
        if (gate && (c->next_waits || c->loaded))
            load(c, c->next_waits ? c->next_count : c->count, tick + 1);
        return;
    }
    if (!c->loaded)
        return;
    if (!gate) {
        c->passed = elapsed(c, tick);
        c->held = true;
    } else if (is_periodic(c)) { /* the rising gate starts a new period */
        c->held = false;
        load(c, c->next_waits ? c->next_count : c->count, tick + 1);
    } else {
        /* Counted so far, but never from before the machine was made. */
        c->held = false;
        c->start = tick + 1 > c->passed ? tick + 1 - c->passed : 0;
    }
}

void pit_channel_control(struct pit_channel *c, uint8_t word)
{
    uint8_t mode = word >> 1 & 7;

    *c = (struct pit_channel){
        .mode = mode > 5 ? mode & 3 : mode, /* 6 and 7 are 2 and 3 */
        .access = word >> 4 & 3,
        .bcd = word & 1,
        .gate = c->gate,
        .count = 1,
        .next_count = 1,
    };
}

static uint32_t count_of_register(const struct pit_channel *c, uint16_t value)
{
    uint32_t count = value;

    if (c->bcd)
        count = ((value >> 12) * 1000u + (value >> 8 & 15) * 100u + (value >> 4 & 15) * 10u +
                 (value & 15u)) %
                10000;
    return count ? count : modulus(c);
}

/* The whole count has been written. */
static void write_count(struct pit_channel *c, uint16_t value, uint64_t tick)
{
    uint32_t count = count_of_register(c, value);

    if (is_triggered(c) || (is_periodic(c) && c->loaded)) {
        /* Periodic and already waiting: the time of the change stays. */
        if (is_periodic(c) && !c->held && !c->next_waits)
            c->switch_at = pit_channel_next_rise(c, tick);
        c->next_waits = true;
        c->next_count = count;
        return;
    }
    load(c, count, tick + 1);
    c->held = !c->gate;
}

void pit_channel_write(struct pit_channel *c, uint8_t value, uint64_t tick)
{
    if (c->access == ACCESS_LOW) {
        write_count(c, value, tick);
    } else if (c->access == ACCESS_HIGH) {
        write_count(c, (uint16_t)(value << 8), tick);
    } else if (!c->write_high) {
        c->written_low = value;
        c->write_high = true;
        /* In mode 0 the first byte stops the count and takes OUT low. */
        if (c->mode == 0)
            c->loaded = c->held = false;
    } else {
        c->write_high = false;
        write_count(c, (uint16_t)(value << 8 | c->written_low), tick);
    }
}

static uint16_t to_bcd(uint32_t value)
{
    return (uint16_t)(value / 1000 % 10 << 12 | value / 100 % 10 << 8 | value / 10 % 10 << 4 |
                      value % 10);
}

static uint16_t counter_register(const struct pit_channel *c, uint64_t tick)
{
    uint64_t e = elapsed(c, tick);
    uint32_t value;

    if (!c->loaded) {
        value = c->next_count;
    } else if (c->mode == 2) {
        value = c->count - (uint32_t)(e % c->count);
    } else if (c->mode == 3) { /* counts down by two, twice a period */
        uint32_t phase = (uint32_t)(e % c->count), high = high_ticks(c->count);
        value = (c->count & ~1u) - 2 * (phase < high ? phase : phase - high);
    } else { /* goes on below 0 */
        value = c->count + modulus(c) - (uint32_t)(e % modulus(c));
    }
    return c->bcd ? to_bcd(value) : (uint16_t)value;
}

static uint8_t register_byte(struct pit_channel *c, uint16_t value)
{
    if (c->access == ACCESS_LOW)
        return (uint8_t)value;
    if (c->access == ACCESS_HIGH)
        return (uint8_t)(value >> 8);
    c->read_high = !c->read_high;
    return (uint8_t)(c->read_high ? value : value >> 8);
}

uint8_t pit_channel_read(struct pit_channel *c, uint64_t tick)
{
    if (c->status_latched) {
        c->status_latched = false;
        return c->latched_status;
    }
    if (c->latched_bytes) {
        c->latched_bytes--;
        return register_byte(c, c->latched_count);
    }
    return register_byte(c, counter_register(c, tick));
}

void pit_channel_latch_count(struct pit_channel *c, uint64_t tick)
{
    if (c->latched_bytes)
        return;
    c->latched_count = counter_register(c, tick);
    /* A read that stopped half way goes on with the high byte of the latched count. */
    c->latched_bytes = c->access == ACCESS_BOTH && !c->read_high ? 2 : 1;
}

void pit_channel_latch_status(struct pit_channel *c, uint64_t tick)
{
    if (c->status_latched)
        return;
    /* A control word alone has no count on its way: not as in the data sheet, but as every other
     * PIT of a virtual machine says. Linux stops channel 0 with one, and the Linux that kexec
     * starts waits for this bit to clear where there is no TSC (lib/kaslr.c). */
    bool null_count = c->next_waits || (c->loaded && !c->held && tick < c->start);
    c->latched_status = (uint8_t)(pit_channel_out(c, tick) << 7 | null_count << 6 | c->access << 4 |
                                  c->mode << 1 | c->bcd);
    c->status_latched = true;
}

static bool valid_count(const struct pit_channel *c, uint32_t count)
{
    return count >= 1 && count <= modulus(c);
}

bool pit_channel_valid(const struct pit_channel *c)
{
    if (c->mode > 5 || c->access < ACCESS_LOW || c->access > ACCESS_BOTH || c->latched_bytes > 2)
        return false;
    if (!valid_count(c, c->count) || !valid_count(c, c->next_count))
        return false;
    return c->start <= LAST_TICK && c->passed <= LAST_TICK && c->switch_at <= LAST_TICK;
}
