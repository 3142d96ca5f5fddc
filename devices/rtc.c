#include "devices/rtc.h"

#include <string.h>

#include "devices/byte_ports.h"
#include "devices/calendar.h"
#include "devices/clock_ticks.h"

enum {
    REG_SECOND = 0,
    REG_SECOND_ALARM = 1,
    REG_MINUTE = 2,
    REG_MINUTE_ALARM = 3,
    REG_HOUR = 4,
    REG_HOUR_ALARM = 5,
    REG_WEEKDAY = 6,
    REG_DAY = 7,
    REG_MONTH = 8,
    REG_YEAR = 9,
    REG_A = 10,
    REG_B = 11,
    REG_C = 12,
    REG_D = 13,
};

#define A_UIP     0x80
#define A_DIVIDER 0x70
#define A_RUNNING 0x20 /* the divider chain counts a 32768 Hz crystal */
#define A_RATE    0x0f

#define B_SET        0x80
#define B_PERIODIC   0x40 /* these three stand where their flags are in register C */
#define B_ALARM      0x20
#define B_UPDATE     0x10
#define B_INTERRUPTS 0x70
#define B_BINARY     0x04
#define B_24_HOURS   0x02

#define C_REQUEST 0x80

#define D_VALID 0x80 /* the battery is good */

#define HOUR_PM          0x80
#define ANY              0xc0 /* an alarm byte from here on matches everything */
#define CRYSTAL_HZ       32768u
#define DAY_SECONDS      86400
#define WALL_SECONDS(ns) ((int64_t)((ns) / NS_PER_SECOND))

static int64_t rtc_seconds(const struct rtc *rtc)
{
    return WALL_SECONDS(rtc->time->wall(rtc->time)) + rtc->offset;
}

static uint8_t encode(const struct rtc *rtc, unsigned value)
{
    return (uint8_t)(rtc->ram[REG_B] & B_BINARY ? value : value / 10 << 4 | value % 10);
}

static unsigned decode(const struct rtc *rtc, uint8_t value)
{
    return rtc->ram[REG_B] & B_BINARY ? value : (value >> 4) * 10u + (value & 15u);
}

static uint8_t encode_hour(const struct rtc *rtc, unsigned hour)
{
    if (rtc->ram[REG_B] & B_24_HOURS)
        return encode(rtc, hour);
    return (uint8_t)(encode(rtc, (hour + 11) % 12 + 1) | (hour >= 12 ? HOUR_PM : 0));
}

static unsigned decode_hour(const struct rtc *rtc, uint8_t value)
{
    if (rtc->ram[REG_B] & B_24_HOURS)
        return decode(rtc, value);
    return decode(rtc, value & (uint8_t)~HOUR_PM) % 12 + (value & HOUR_PM ? 12 : 0);
}

/* The clock's registers as they stand at a time. */
static void registers_of(const struct rtc *rtc, int64_t seconds, uint8_t *ram)
{
    struct calendar c = calendar_of(seconds);
    unsigned century = (unsigned)c.year / 100;

    ram[REG_SECOND] = encode(rtc, c.second);
    ram[REG_MINUTE] = encode(rtc, c.minute);
    ram[REG_HOUR] = encode_hour(rtc, c.hour);
    ram[REG_WEEKDAY] = encode(rtc, c.weekday);
    ram[REG_DAY] = encode(rtc, c.day);
    ram[REG_MONTH] = encode(rtc, c.month);
    ram[REG_YEAR] = encode(rtc, (unsigned)c.year % 100);
    ram[RTC_CENTURY] = (uint8_t)(century / 10 << 4 | century % 10); /* always BCD */
}

/* Set the clock to what the registers in ram say, whatever the guest has put there. */
static void set_clock(struct rtc *rtc, const uint8_t *ram)
{
    unsigned century = (ram[RTC_CENTURY] >> 4) * 10u + (ram[RTC_CENTURY] & 15u);
    struct calendar c = {
        .year = (int)(century * 100 + decode(rtc, ram[REG_YEAR])),
        .month = decode(rtc, ram[REG_MONTH]),
        .day = decode(rtc, ram[REG_DAY]),
        .hour = decode_hour(rtc, ram[REG_HOUR]),
        .minute = decode(rtc, ram[REG_MINUTE]),
        .second = decode(rtc, ram[REG_SECOND]),
    };

    rtc->offset = calendar_seconds(&c) - WALL_SECONDS(rtc->time->wall(rtc->time));
}

static bool is_clock(unsigned index)
{
    return index == REG_SECOND || index == REG_MINUTE || index == REG_HOUR ||
           (index >= REG_WEEKDAY && index <= REG_YEAR) || index == RTC_CENTURY;
}

static bool alarm_matches(uint8_t alarm, uint8_t now)
{
    return alarm >= ANY || alarm == now;
}

/* The first second after `after` that the alarm bytes match; INT64_MAX when none does. */
static int64_t next_alarm(const struct rtc *rtc, int64_t after)
{
    int64_t midnight = after - (after % DAY_SECONDS + DAY_SECONDS) % DAY_SECONDS;
    int64_t first = after + 1 - midnight, at = first;

    while (at < first + DAY_SECONDS) { /* hours, then minutes, then seconds: under 150 rounds */
        unsigned second = (unsigned)(at % DAY_SECONDS);
        if (!alarm_matches(rtc->ram[REG_HOUR_ALARM], encode_hour(rtc, second / 3600)))
            at += 3600 - at % 3600;
        else if (!alarm_matches(rtc->ram[REG_MINUTE_ALARM], encode(rtc, second / 60 % 60)))
            at += 60 - at % 60;
        else if (!alarm_matches(rtc->ram[REG_SECOND_ALARM], encode(rtc, second % 60)))
            at++;
        else
            return midnight + at;
    }
    return INT64_MAX;
}

/* The shift from crystal ticks to periodic ticks, or -1 when there are none. */
static int period_shift(const struct rtc *rtc)
{
    unsigned rate = rtc->ram[REG_A] & A_RATE;

    if (!rate || (rtc->ram[REG_A] & A_DIVIDER) != A_RUNNING)
        return -1;
    return rate <= 2 ? (int)rate + 6 : (int)rate - 1; /* 1 and 2 repeat 8 and 9 */
}

static uint64_t period_number(const struct rtc *rtc, uint64_t now)
{
    int shift = period_shift(rtc);

    return shift < 0 ? 0 : ticks_at(now, CRYSTAL_HZ) >> shift;
}

static void update_irq(struct rtc *rtc)
{
    uint8_t *c = &rtc->ram[REG_C];
    bool request = *c & rtc->ram[REG_B] & B_INTERRUPTS;

    *c = (uint8_t)((*c & ~C_REQUEST) | (request ? C_REQUEST : 0));
    irq_pin_set(&rtc->irq, request);
}

/* What has been worked out so far is forgotten: the clock, its format or the alarm changed. */
static void start_over(struct rtc *rtc)
{
    rtc->second_seen = rtc_seconds(rtc);
    rtc->alarm_at = next_alarm(rtc, rtc->second_seen);
    rtc->period_seen = period_number(rtc, rtc->time->now(rtc->time));
}

/* Set the flags of everything that has happened by `now`. */
static void advance(struct rtc *rtc, uint64_t now)
{
    uint64_t period = period_number(rtc, now);

    if (period != rtc->period_seen)
        rtc->ram[REG_C] |= B_PERIODIC;
    rtc->period_seen = period;
    if (!(rtc->ram[REG_B] & B_SET)) {
        int64_t second = rtc_seconds(rtc);
        if (second < rtc->second_seen) { /* the wall clock was set back */
            rtc->second_seen = second;
            rtc->alarm_at = next_alarm(rtc, second);
        } else if (second > rtc->second_seen) {
            rtc->ram[REG_C] |= B_UPDATE;
            if (second >= rtc->alarm_at) {
                rtc->ram[REG_C] |= B_ALARM;
                if (rtc->ram[REG_B] & B_ALARM)
                    irq_pin_set(&rtc->wake, true);
                rtc->alarm_at = next_alarm(rtc, second);
            }
            rtc->second_seen = second;
        }
    }
    update_irq(rtc);
}

/* When, in device time, the clock will show a second; the wall clock is taken to go on evenly. */
static uint64_t when_second(const struct rtc *rtc, int64_t second, uint64_t now)
{
    uint64_t wall = rtc->time->wall(rtc->time);
    int64_t left = second - rtc->offset - WALL_SECONDS(wall);

    if (left <= 0)
        return now;
    /* Look again once a day at the latest, which also keeps the product small. */
    if (left > DAY_SECONDS)
        left = DAY_SECONDS;
    return now + (uint64_t)left * NS_PER_SECOND - wall % NS_PER_SECOND;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t deadline(const struct device *dev)
{
    const struct rtc *rtc = (const struct rtc *)dev;
    /* A flag that is set already raises nothing new. */
    uint8_t awaited = (uint8_t)(rtc->ram[REG_B] & ~rtc->ram[REG_C] & B_INTERRUPTS);
    uint64_t now = rtc->time->now(rtc->time), at = NEVER;
    int shift = period_shift(rtc);

    if (awaited & B_PERIODIC && shift >= 0)
        at = earlier(at, ns_of_tick((rtc->period_seen + 1) << shift, CRYSTAL_HZ));
    if (rtc->ram[REG_B] & B_SET)
        return at;
    if (awaited & B_UPDATE)
        at = earlier(at, when_second(rtc, rtc->second_seen + 1, now));
    if (awaited & B_ALARM && rtc->alarm_at != INT64_MAX)
        at = earlier(at, when_second(rtc, rtc->alarm_at, now));
    return at;
}

static void poll(struct device *dev, uint64_t now)
{
    advance((struct rtc *)dev, now);
}

static void write_b(struct rtc *rtc, uint8_t value)
{
    uint8_t before = rtc->ram[REG_B];

    if (value & B_SET)
        value &= (uint8_t)~B_UPDATE;
    if (value & B_SET && !(before & B_SET)) /* the clock stands still in its registers */
        registers_of(rtc, rtc_seconds(rtc), rtc->ram);
    rtc->ram[REG_B] = value;
    if (before & B_SET && !(value & B_SET))
        set_clock(rtc, rtc->ram);
    if ((before ^ value) & (B_SET | B_BINARY | B_24_HOURS))
        start_over(rtc);
}

static void write_data(struct rtc *rtc, uint8_t value)
{
    unsigned index = rtc->index;

    if (is_clock(index)) {
        bool stopped = rtc->ram[REG_B] & B_SET;
        if (!stopped)
            registers_of(rtc, rtc_seconds(rtc), rtc->ram);
        rtc->ram[index] = value;
        if (!stopped) {
            set_clock(rtc, rtc->ram);
            start_over(rtc);
        }
        return;
    }
    switch (index) {
    case REG_A:
        rtc->ram[REG_A] = value & (uint8_t)~A_UIP;
        rtc->period_seen = period_number(rtc, rtc->time->now(rtc->time));
        break;
    case REG_B:
        write_b(rtc, value);
        break;
    case REG_C:
    case REG_D: /* read only */
        break;
    default:
        rtc->ram[index] = value;
        if (index == REG_SECOND_ALARM || index == REG_MINUTE_ALARM || index == REG_HOUR_ALARM)
            rtc->alarm_at = next_alarm(rtc, rtc->second_seen);
    }
}

static uint8_t read_data(struct rtc *rtc)
{
    uint8_t value;

    if (is_clock(rtc->index) && !(rtc->ram[REG_B] & B_SET))
        registers_of(rtc, rtc_seconds(rtc), rtc->ram);
    value = rtc->ram[rtc->index];
    if (rtc->index == REG_C) /* reading acknowledges */
        rtc->ram[REG_C] = 0;
    return value;
}

static uint8_t read_port(void *dev, unsigned port)
{
    struct rtc *rtc = dev;

    if (port == 0) /* the index cannot be read */
        return 0xff;
    advance(rtc, rtc->time->now(rtc->time));
    uint8_t value = read_data(rtc);
    update_irq(rtc);
    return value;
}

static void write_port(void *dev, unsigned port, uint8_t value)
{
    struct rtc *rtc = dev;

    if (port == 0) { /* bit 7 masks NMIs, of which there are none */
        rtc->index = value % RTC_BYTES;
        return;
    }
    advance(rtc, rtc->time->now(rtc->time));
    write_data(rtc, value);
    update_irq(rtc);
}

static uint64_t rtc_in(void *dev, uint64_t offset, unsigned size)
{
    return byte_ports_read(read_port, dev, offset, size);
}

static void rtc_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    byte_ports_write(write_port, dev, offset, size, value);
}

int rtc_attach(struct rtc *rtc, struct bus *pio, struct err *e)
{
    static const struct bus_ops ops = {rtc_in, rtc_out};
    const struct bus_range range = {
        .base = RTC_PORT, .size = 2, .ops = &ops, .dev = rtc, .name = "rtc"};

    return bus_add(pio, &range, e);
}

void rtc_wall_changed(struct rtc *rtc)
{
    start_over(rtc);
}

static void reset(struct rtc *rtc)
{
    rtc->index = 0;
    memset(rtc->ram, 0, sizeof(rtc->ram));
    rtc->ram[REG_A] = A_RUNNING | 6; /* 1024 Hz */
    rtc->ram[REG_B] = B_24_HOURS;
    rtc->ram[REG_D] = D_VALID;
    rtc->offset = 0;
    start_over(rtc);
    update_irq(rtc);
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct rtc *rtc = (const struct rtc *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, rtc->index);
    bytes_put(out, rtc->ram, sizeof(rtc->ram));
    bytes_put_u64(out, (uint64_t)rtc->offset);
    bytes_put_u64(out, (uint64_t)rtc->second_seen);
    bytes_put_u64(out, rtc->period_seen);
}

/* Whether seconds lie in the calendar; twice that for an offset. */
static bool plausible(int64_t seconds, int64_t factor)
{
    return seconds >= CALENDAR_FIRST * factor && seconds <= CALENDAR_LAST * factor;
}

static int restore(struct device *dev, struct cursor *in)
{
    struct rtc *rtc = (struct rtc *)dev;
    uint8_t version = cursor_u8(in);

    rtc->index = cursor_u8(in);
    cursor_get(in, rtc->ram, sizeof(rtc->ram));
    rtc->offset = (int64_t)cursor_u64(in);
    rtc->second_seen = (int64_t)cursor_u64(in);
    rtc->period_seen = cursor_u64(in);
    if (in->bad || version != STATE_VERSION || rtc->index >= RTC_BYTES || rtc->ram[REG_A] & A_UIP ||
        rtc->ram[REG_D] != D_VALID || rtc->ram[REG_C] & (uint8_t) ~(C_REQUEST | B_INTERRUPTS) ||
        !plausible(rtc->offset, 2) || !plausible(rtc->second_seen, 4) ||
        rtc->period_seen > ticks_at(UINT64_MAX, CRYSTAL_HZ)) {
        reset(rtc);
        return -1;
    }
    rtc->alarm_at = next_alarm(rtc, rtc->second_seen);
    update_irq(rtc);
    return 0;
}

static const struct device_ops rtc_ops = {
    .name = "rtc", .deadline = deadline, .poll = poll, .save = save, .restore = restore};

void rtc_init(struct rtc *rtc, struct irq_pin irq, struct irq_pin wake, struct device_time *time)
{
    *rtc = (struct rtc){.dev.ops = &rtc_ops, .irq = irq, .wake = wake, .time = time};
    reset(rtc);
}
