#include "devices/pmtimer.h"

#include "devices/byte_ports.h"
#include "devices/clock_ticks.h"

#define EVENT_TIMER        0x0001
#define EVENT_POWER_BUTTON 0x0100
#define EVENT_RTC          0x0400
#define STATUS_BITS        0x8731 /* the events, bus master, wake */
#define ENABLE_BITS        0x0721

#define CONTROL_SCI_EN            0x0001
#define CONTROL_KEPT              0x1c02 /* SLP_TYP and BM_RLD; SLP_EN and GBL_RLS read as 0 */
#define CONTROL_SLP_EN            0x2000
#define CONTROL_SLP_TYPE(control) ((control) >> 10 & 7)

/* TMR_STS comes with every change of the timer's highest bit (4.8.3.1.1). */
static void observe_timer(struct pmtimer *pm, uint64_t now)
{
    bool carry = ticks_at(now, PM_TIMER_HZ) >> 31 & 1;

    if (carry != pm->carry)
        pm->status |= EVENT_TIMER;
    pm->carry = carry;
}

static void update_sci(const struct pmtimer *pm)
{
    irq_pin_set(&pm->sci, pm->status & pm->enable & ENABLE_BITS);
}

static uint64_t deadline(const struct device *dev)
{
    const struct pmtimer *pm = (const struct pmtimer *)dev;

    if (!(pm->enable & EVENT_TIMER) || pm->status & EVENT_TIMER)
        return NEVER;
    uint64_t half = ticks_at(pm->time->now(pm->time), PM_TIMER_HZ) >> 31;
    /* A change that nobody has looked at yet is due already. */
    if ((half & 1) != pm->carry)
        return ns_of_tick(half << 31, PM_TIMER_HZ);
    return ns_of_tick((half + 1) << 31, PM_TIMER_HZ);
}

static void poll(struct device *dev, uint64_t now)
{
    struct pmtimer *pm = (struct pmtimer *)dev;

    observe_timer(pm, now);
    update_sci(pm);
}

void pmtimer_power_button(struct pmtimer *pm)
{
    pm->status |= EVENT_POWER_BUTTON;
    update_sci(pm);
}

void pmtimer_rtc_alarm(struct pmtimer *pm)
{
    pm->status |= EVENT_RTC;
    update_sci(pm);
}

static uint8_t read_register(void *dev, unsigned port)
{
    const struct pmtimer *pm = dev;
    const uint16_t registers[] = {pm->status, pm->enable, pm->control};

    return (uint8_t)(registers[port / 2] >> (8 * (port % 2)));
}

static void write_register(void *dev, unsigned port, uint8_t byte)
{
    struct pmtimer *pm = dev;
    unsigned shift = 8 * (port % 2);
    uint16_t value = (uint16_t)(byte << shift), lane = (uint16_t)(0xff << shift);

    switch (port / 2) {
    case 0: /* writing ones clears */
        pm->status &= (uint16_t)~value;
        break;
    case 1:
        pm->enable = (uint16_t)((pm->enable & ~lane) | (value & ENABLE_BITS));
        break;
    default:
        pm->control = (uint16_t)((pm->control & ~lane) | (value & CONTROL_KEPT) | CONTROL_SCI_EN);
        if (value & CONTROL_SLP_EN && CONTROL_SLP_TYPE(value) == PM_SLEEP_TYPE_OFF)
            machine_request_send(&pm->requests, MACHINE_POWEROFF);
    }
}

static uint64_t registers_in(void *dev, uint64_t offset, unsigned size)
{
    struct pmtimer *pm = dev;

    poll(&pm->dev, pm->time->now(pm->time));
    return byte_ports_read(read_register, dev, offset, size);
}

static void registers_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct pmtimer *pm = dev;

    observe_timer(pm, pm->time->now(pm->time));
    byte_ports_write(write_register, dev, offset, size, value);
    update_sci(pm);
}

static uint64_t timer_in(void *dev, uint64_t offset, unsigned size)
{
    const struct pmtimer *pm = dev;
    uint32_t timer = (uint32_t)ticks_at(pm->time->now(pm->time), PM_TIMER_HZ);

    (void)size;
    return timer >> (8 * offset);
}

static void timer_out(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    (void)dev; /* read only */
    (void)offset;
    (void)size;
    (void)value;
}

int pmtimer_attach(struct pmtimer *pm, struct bus *pio, struct err *e)
{
    static const struct bus_ops registers = {registers_in, registers_out};
    static const struct bus_ops timer = {timer_in, timer_out};
    const struct bus_range ranges[] = {
        {.base = PM_EVENT_PORT, .size = 6, .ops = &registers, .dev = pm, .name = "acpi pm1"},
        {.base = PM_TIMER_PORT, .size = 4, .ops = &timer, .dev = pm, .name = "acpi timer"},
    };

    for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
        if (bus_add(pio, &ranges[i], e))
            return -1;
    return 0;
}

static void reset(struct pmtimer *pm)
{
    pm->status = pm->enable = 0;
    pm->control = CONTROL_SCI_EN;
    pm->carry = ticks_at(pm->time->now(pm->time), PM_TIMER_HZ) >> 31 & 1;
    update_sci(pm);
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct pmtimer *pm = (const struct pmtimer *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u16(out, pm->status);
    bytes_put_u16(out, pm->enable);
    bytes_put_u16(out, pm->control);
    bytes_put_u8(out, pm->carry);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct pmtimer *pm = (struct pmtimer *)dev;
    uint8_t version = cursor_u8(in);
    uint16_t status = cursor_u16(in), enable = cursor_u16(in), control = cursor_u16(in);
    uint8_t carry = cursor_u8(in);

    if (in->bad || version != STATE_VERSION || status & ~STATUS_BITS || enable & ~ENABLE_BITS ||
        (control & ~CONTROL_KEPT) != CONTROL_SCI_EN || carry > 1) {
        reset(pm);
        return -1;
    }
    pm->status = status;
    pm->enable = enable;
    pm->control = control;
    pm->carry = carry;
    update_sci(pm);
    return 0;
}

static const struct device_ops pmtimer_ops = {
    .name = "pmtimer", .deadline = deadline, .poll = poll, .save = save, .restore = restore};

void pmtimer_init(struct pmtimer *pm, struct irq_pin sci, struct device_time *time,
                  struct machine_request_pin requests)
{
    *pm = (struct pmtimer){.dev.ops = &pmtimer_ops, .sci = sci, .time = time, .requests = requests};
    reset(pm);
}
