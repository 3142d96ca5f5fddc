#include "devices/lapic.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "devices/clock_ticks.h"

#define VERSION 0x00050014u /* version 0x14, the highest local vector is number 5 */

#define BASE_BSP     (1ull << 8)
#define BASE_X2APIC  (1ull << 10)
#define BASE_ENABLED (1ull << 11)
#define BASE_KNOWN   (BASE_BSP | BASE_X2APIC | BASE_ENABLED | 0xfffffffff000ull)

#define SVR_ENABLED (1u << 8)
#define SVR_KNOWN   0x3ffu /* vector, enabled, no focus checking */

#define LVT_MASKED   (1u << 16)
#define LVT_PERIODIC (1u << 17)
#define LVT_MODE(v)  ((enum apic_mode)((v) >> 8 & 7))
/* What can be written (11.5.1): vector and mask; timer mode; delivery mode; polarity and trigger.
 */
static const uint32_t lvt_known[LVT_COUNT] = {
    [LVT_TIMER] = 0x300ff, [LVT_THERMAL] = 0x107ff, [LVT_PERFORMANCE] = 0x107ff,
    [LVT_LINT0] = 0x1a7ff, [LVT_LINT1] = 0x1a7ff,   [LVT_ERROR] = 0x100ff,
};

#define ICR_LOGICAL      (1u << 11)
#define ICR_ASSERT       (1u << 14)
#define ICR_LEVEL        (1u << 15)
#define ICR_KNOWN        0x000ccfffu
#define ICR_MODE(v)      ((enum apic_mode)((v) >> 8 & 7))
#define ICR_SHORTHAND(v) ((v) >> 18 & 3)
enum { TO_DESTINATION, TO_SELF, TO_ALL, TO_OTHERS };

#define ESR_SEND_ILLEGAL    0x20 /* bits of ESR, 11.5.3 */
#define ESR_RECEIVE_ILLEGAL 0x40
#define ESR_REGISTER        0x80

#define FIRST_LEGAL_VECTOR 16
#define NO_VECTOR          (-1)

static bool is_x2apic(const struct lapic *lapic)
{
    return (lapic->base & BASE_ENABLED) && (lapic->base & BASE_X2APIC);
}

bool lapic_is_enabled(const struct lapic *lapic)
{
    return (lapic->base & BASE_ENABLED) && (lapic->svr & SVR_ENABLED);
}

/* ---- vectors ---- */

static void set_bit(uint32_t bits[8], uint8_t vector)
{
    bits[vector / 32] |= 1u << vector % 32;
}

static void clear_bit(uint32_t bits[8], uint8_t vector)
{
    bits[vector / 32] &= ~(1u << vector % 32);
}

static bool has_bit(const uint32_t bits[8], uint8_t vector)
{
    return bits[vector / 32] >> vector % 32 & 1;
}

static int highest(const uint32_t bits[8])
{
    for (int word = 7; word >= 0; word--)
        if (bits[word])
            return word * 32 + 31 - __builtin_clz(bits[word]);
    return NO_VECTOR;
}

/* 11.8.3.1 */
uint8_t lapic_priority(const struct lapic *lapic)
{
    int serving = highest(lapic->isr);
    uint8_t class = serving == NO_VECTOR ? 0 : (uint8_t)serving & 0xf0;

    return lapic->tpr >> 4 >= class >> 4 ? lapic->tpr : class;
}

bool lapic_pending(const struct lapic *lapic)
{
    int vector = highest(lapic->irr);

    return lapic_is_enabled(lapic) && vector != NO_VECTOR &&
           vector >> 4 > lapic_priority(lapic) >> 4;
}

uint8_t lapic_acknowledge(struct lapic *lapic)
{
    assert(lapic_pending(lapic));
    uint8_t vector = (uint8_t)highest(lapic->irr);

    clear_bit(lapic->irr, vector);
    set_bit(lapic->isr, vector);
    return vector;
}

static void signal_error(struct lapic *lapic, uint8_t error)
{
    const uint32_t lvt = lapic->lvt[LVT_ERROR];
    const bool first = !(lapic->errors & error);

    lapic->errors |= error;
    /* Not for an illegal vector in LVT_ERROR itself, over and over. */
    if (first && !(lvt & LVT_MASKED) && (uint8_t)lvt >= FIRST_LEGAL_VECTOR)
        lapic_accept(lapic, (uint8_t)lvt, false);
}

void lapic_accept(struct lapic *lapic, uint8_t vector, bool level)
{
    if (!lapic_is_enabled(lapic))
        return;
    if (vector < FIRST_LEGAL_VECTOR) {
        signal_error(lapic, ESR_RECEIVE_ILLEGAL);
        return;
    }
    set_bit(lapic->irr, vector);
    if (level)
        set_bit(lapic->tmr, vector);
    else
        clear_bit(lapic->tmr, vector);
}

static void end_of_interrupt(struct lapic *lapic)
{
    int vector = highest(lapic->isr);

    if (vector == NO_VECTOR)
        return;
    clear_bit(lapic->isr, (uint8_t)vector);
    if (has_bit(lapic->tmr, (uint8_t)vector))
        apic_bus_eoi(lapic->bus, (uint8_t)vector);
}

bool lapic_passes_extint(const struct lapic *lapic)
{
    const uint32_t lvt = lapic->lvt[LVT_LINT0];

    if (!(lapic->base & BASE_ENABLED)) /* then LINT0 is INTR, and is wired on the first CPU */
        return lapic->cpu == 0;
    return (lapic->svr & SVR_ENABLED) && !(lvt & LVT_MASKED) && LVT_MODE(lvt) == APIC_EXTINT;
}

uint8_t lapic_cr8(const struct lapic *lapic)
{
    return lapic->tpr >> 4;
}

void lapic_set_cr8(struct lapic *lapic, uint8_t cr8)
{
    assert(cr8 < 16);
    lapic->tpr = (uint8_t)(cr8 << 4);
}

/* ---- the timer, 11.5.4 ---- */

static unsigned divisor(const struct lapic *lapic)
{
    const unsigned code = (lapic->divide & 3) | (lapic->divide >> 1 & 4);

    return code == 7 ? 1 : 2u << code;
}

static uint64_t ticks_since(const struct lapic *lapic, uint64_t now)
{
    return now > lapic->since ? ticks_at(now - lapic->since, LAPIC_HZ / divisor(lapic)) : 0;
}

static uint64_t expires(const struct lapic *lapic)
{
    return lapic->counting ? lapic->since + ns_of_tick(lapic->left, LAPIC_HZ / divisor(lapic))
                           : NEVER;
}

/* Bring it up to now: at most one interrupt, however many periods have passed. */
static void run_timer(struct lapic *lapic, uint64_t now)
{
    const uint32_t lvt = lapic->lvt[LVT_TIMER];

    if (expires(lapic) > now)
        return;
    if (lvt & LVT_PERIODIC) {
        const uint64_t period = ns_of_tick(lapic->initial, LAPIC_HZ / divisor(lapic));
        lapic->since = expires(lapic);
        lapic->since += (now - lapic->since) / period * period;
        lapic->left = lapic->initial;
    } else {
        lapic->counting = false;
    }
    if (!(lvt & LVT_MASKED))
        lapic_accept(lapic, (uint8_t)lvt, false);
}

static uint32_t current_count(struct lapic *lapic)
{
    const uint64_t now = lapic->time->now(lapic->time);

    run_timer(lapic, now);
    if (!lapic->counting)
        return 0;
    const uint64_t ticks = ticks_since(lapic, now);
    return ticks < lapic->left ? lapic->left - (uint32_t)ticks : 0;
}

static void start_timer(struct lapic *lapic, uint32_t count)
{
    lapic->initial = count;
    lapic->left = count;
    lapic->since = lapic->time->now(lapic->time);
    lapic->counting = count != 0;
}

static void set_divide(struct lapic *lapic, uint32_t value)
{
    lapic->left = current_count(lapic);
    lapic->since = lapic->time->now(lapic->time);
    lapic->divide = value & 0x0b;
}

/* ---- sending, 11.6.1 ---- */

static void send(struct lapic *lapic, uint32_t icr, uint32_t destination)
{
    const struct apic_message message = {
        .mode = ICR_MODE(icr),
        .vector = (uint8_t)icr,
        .logical = icr & ICR_LOGICAL,
        .destination = destination,
    };

    /* De-asserting INIT synchronizes arbitration IDs, which nobody has any more. */
    if (message.mode == APIC_INIT && (icr & ICR_LEVEL) && !(icr & ICR_ASSERT))
        return;
    /* Modes that cannot be sent: 3 is reserved, and nobody drives another CPU's ExtINT. */
    if ((unsigned)message.mode == 3 || message.mode == APIC_EXTINT)
        return;
    if (message.mode <= APIC_LOWEST_PRIORITY && message.vector < FIRST_LEGAL_VECTOR) {
        signal_error(lapic, ESR_SEND_ILLEGAL);
        return;
    }
    switch (ICR_SHORTHAND(icr)) {
    case TO_DESTINATION:
        apic_bus_send(lapic->bus, &message);
        break;
    case TO_SELF:
        if (message.mode == APIC_FIXED) /* others to oneself are not valid (table 11-3) */
            apic_bus_send_one(lapic->bus, &message, lapic->cpu);
        break;
    case TO_ALL:
        if (message.mode == APIC_FIXED)
            apic_bus_send_all(lapic->bus, &message, UINT_MAX);
        break;
    case TO_OTHERS:
        apic_bus_send_all(lapic->bus, &message, lapic->cpu);
        break;
    }
}

/* An xAPIC's destinations have 8 bits, 0xff being all. */
static uint32_t destination_of(const struct lapic *lapic, uint32_t high)
{
    if (is_x2apic(lapic))
        return high;
    return high >> 24 == 0xff ? APIC_BROADCAST : high >> 24;
}

/* 11.12.10.2: 16 CPUs a cluster. */
static uint32_t x2apic_ldr(const struct lapic *lapic)
{
    return lapic->cpu >> 4 << 16 | 1u << (lapic->cpu & 15);
}

bool lapic_is_meant(const struct lapic *lapic, bool logical, uint32_t destination)
{
    if (!(lapic->base & BASE_ENABLED))
        return false;
    if (destination == APIC_BROADCAST)
        return true;
    if (!logical)
        return destination == lapic->cpu;
    if (is_x2apic(lapic))
        return destination >> 16 == x2apic_ldr(lapic) >> 16 &&
               (destination & x2apic_ldr(lapic) & 0xffff);
    const uint8_t id = lapic->ldr >> 24;
    if (lapic->dfr >> 28 == 0xf) /* flat */
        return destination & id;
    return destination >> 4 == id >> 4 && (destination & id & 15); /* clusters */
}

/* ---- registers ---- */

static void write_lvt(struct lapic *lapic, unsigned which, uint32_t value)
{
    value &= lvt_known[which];
    if (!(lapic->svr & SVR_ENABLED)) /* 11.4.7.2 */
        value |= LVT_MASKED;
    if (which == LVT_TIMER)
        run_timer(lapic, lapic->time->now(lapic->time)); /* in the mode it had */
    lapic->lvt[which] = value;
}

static void write_svr(struct lapic *lapic, uint32_t value)
{
    lapic->svr = value & SVR_KNOWN;
    for (unsigned i = 0; i < LVT_COUNT && !(value & SVR_ENABLED); i++)
        lapic->lvt[i] |= LVT_MASKED;
}

/* Writing latches the errors since the last write. */
static void write_esr(struct lapic *lapic)
{
    lapic->esr = lapic->errors;
    lapic->errors = 0;
}

uint32_t lapic_read(struct lapic *lapic, unsigned reg)
{
    if (reg >= LAPIC_ISR && reg < LAPIC_TMR)
        return lapic->isr[reg - LAPIC_ISR];
    if (reg >= LAPIC_TMR && reg < LAPIC_IRR)
        return lapic->tmr[reg - LAPIC_TMR];
    if (reg >= LAPIC_IRR && reg < LAPIC_ESR)
        return lapic->irr[reg - LAPIC_IRR];
    if (reg >= LAPIC_LVT && reg < LAPIC_LVT + LVT_COUNT)
        return lapic->lvt[reg - LAPIC_LVT];
    switch (reg) {
    case LAPIC_ID:
        return is_x2apic(lapic) ? lapic->cpu : lapic->cpu << 24;
    case LAPIC_VERSION:
        return VERSION;
    case LAPIC_TPR:
        return lapic->tpr;
    case LAPIC_APR:
    case LAPIC_PPR:
        return lapic_priority(lapic);
    case LAPIC_EOI:
    case LAPIC_RRD:
        return 0;
    case LAPIC_LDR:
        return is_x2apic(lapic) ? x2apic_ldr(lapic) : lapic->ldr;
    case LAPIC_DFR:
        return lapic->dfr;
    case LAPIC_SVR:
        return lapic->svr;
    case LAPIC_ESR:
        return lapic->esr;
    case LAPIC_ICR:
        return lapic->icr; /* never busy: messages arrive at once */
    case LAPIC_ICR_HIGH:
        return lapic->icr_high;
    case LAPIC_INITIAL_COUNT:
        return lapic->initial;
    case LAPIC_CURRENT_COUNT:
        return current_count(lapic);
    case LAPIC_DIVIDE:
        return lapic->divide;
    default:
        signal_error(lapic, ESR_REGISTER);
        return 0;
    }
}

void lapic_write(struct lapic *lapic, unsigned reg, uint32_t value)
{
    if (reg >= LAPIC_LVT && reg < LAPIC_LVT + LVT_COUNT) {
        write_lvt(lapic, reg - LAPIC_LVT, value);
        return;
    }
    switch (reg) {
    case LAPIC_ID: /* fixed, as on current CPUs */
        break;
    case LAPIC_TPR:
        lapic->tpr = (uint8_t)value;
        break;
    case LAPIC_EOI:
        end_of_interrupt(lapic);
        break;
    case LAPIC_LDR:
        lapic->ldr = value & 0xff000000;
        break;
    case LAPIC_DFR:
        lapic->dfr = value | 0x0fffffff;
        break;
    case LAPIC_SVR:
        write_svr(lapic, value);
        break;
    case LAPIC_ESR:
        write_esr(lapic);
        break;
    case LAPIC_ICR:
        lapic->icr = value & ICR_KNOWN;
        send(lapic, lapic->icr, destination_of(lapic, lapic->icr_high));
        break;
    case LAPIC_ICR_HIGH:
        lapic->icr_high = is_x2apic(lapic) ? value : value & 0xff000000;
        break;
    case LAPIC_INITIAL_COUNT:
        start_timer(lapic, value);
        break;
    case LAPIC_DIVIDE:
        set_divide(lapic, value);
        break;
    default: /* the others cannot be written */
        signal_error(lapic, ESR_REGISTER);
    }
}

/* ---- MSRs ---- */

/* 11.12.1: from disabled to xAPIC, from there to x2APIC, and from both to disabled. */
static bool write_base(struct lapic *lapic, uint64_t value)
{
    const uint64_t modes = BASE_ENABLED | BASE_X2APIC;
    const uint64_t old = lapic->base & modes, new = value &modes;

    if ((value & ~BASE_KNOWN) || new == BASE_X2APIC)
        return false;
    if (old != new && ((old == modes && new) || (!old && new == modes)))
        return false;
    /* The page stays where every system has it; moving it away is refused. */
    if ((value & ~(uint64_t)0xfff) != APIC_BASE)
        return false;
    if (!new)
        lapic_reset(lapic);
    lapic->base = (lapic->base & BASE_BSP) | APIC_BASE | new;
    return true;
}

static bool is_readable(unsigned reg)
{
    return (reg >= LAPIC_ISR && reg < LAPIC_ESR + 1) ||
           (reg >= LAPIC_LVT && reg < LAPIC_LVT + LVT_COUNT) || reg == LAPIC_ID ||
           reg == LAPIC_VERSION || reg == LAPIC_TPR || reg == LAPIC_PPR || reg == LAPIC_LDR ||
           reg == LAPIC_SVR || reg == LAPIC_ICR || reg == LAPIC_INITIAL_COUNT ||
           reg == LAPIC_CURRENT_COUNT || reg == LAPIC_DIVIDE;
}

bool lapic_read_msr(struct lapic *lapic, uint32_t msr, uint64_t *value)
{
    *value = 0;
    if (msr == MSR_IA32_APIC_BASE) {
        *value = lapic->base;
        return true;
    }
    const unsigned reg = msr - MSR_X2APIC_FIRST;
    if (!is_x2apic(lapic) || !is_readable(reg))
        return false;
    *value = lapic_read(lapic, reg);
    if (reg == LAPIC_ICR)
        *value |= (uint64_t)lapic->icr_high << 32;
    return true;
}

/* Which bits of an x2APIC register can be written (11.12.1.2): setting another one is #GP. */
static bool is_writable(unsigned reg, uint64_t value)
{
    if (reg >= LAPIC_LVT && reg < LAPIC_LVT + LVT_COUNT) /* some are read-only, none raises #GP */
        return !(value & ~(uint64_t)(lvt_known[reg - LAPIC_LVT] | 0x5000));
    switch (reg) {
    case LAPIC_TPR:
    case LAPIC_SELF_IPI:
        return value <= 0xff;
    case LAPIC_EOI:
    case LAPIC_ESR:
        return !value;
    case LAPIC_SVR:
        return value <= SVR_KNOWN;
    case LAPIC_ICR:
        return !((uint32_t)value & ~ICR_KNOWN);
    case LAPIC_INITIAL_COUNT:
        return value <= UINT32_MAX;
    case LAPIC_DIVIDE:
        return !(value & ~0x0bull);
    default:
        return false;
    }
}

bool lapic_write_msr(struct lapic *lapic, uint32_t msr, uint64_t value)
{
    if (msr == MSR_IA32_APIC_BASE)
        return write_base(lapic, value);
    const unsigned reg = msr - MSR_X2APIC_FIRST;
    if (!is_x2apic(lapic) || !is_writable(reg, value))
        return false;
    if (reg == LAPIC_ICR)
        lapic->icr_high = (uint32_t)(value >> 32);
    if (reg == LAPIC_SELF_IPI)
        send(lapic, TO_SELF << 18 | (uint32_t)value, 0);
    else
        lapic_write(lapic, reg, (uint32_t)value);
    return true;
}

/* ---- the device ---- */

static uint64_t deadline(const struct device *dev)
{
    const struct lapic *lapic = (const struct lapic *)dev;

    /* Masked, it is only read: a short one would have its recorder do nothing else. */
    return lapic->lvt[LVT_TIMER] & LVT_MASKED ? NEVER : expires(lapic);
}

static void poll(struct device *dev, uint64_t now)
{
    run_timer((struct lapic *)dev, now);
}

#define STATE_VERSION 1

static void save(const struct device *dev, struct bytes *out)
{
    const struct lapic *lapic = (const struct lapic *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u64(out, lapic->base);
    bytes_put_u8(out, lapic->tpr);
    bytes_put_u32(out, lapic->ldr);
    bytes_put_u32(out, lapic->dfr);
    bytes_put_u32(out, lapic->svr);
    bytes_put_u32(out, lapic->icr);
    bytes_put_u32(out, lapic->icr_high);
    for (unsigned i = 0; i < LVT_COUNT; i++)
        bytes_put_u32(out, lapic->lvt[i]);
    bytes_put_u8(out, lapic->esr);
    bytes_put_u8(out, lapic->errors);
    for (unsigned i = 0; i < 8; i++) {
        bytes_put_u32(out, lapic->irr[i]);
        bytes_put_u32(out, lapic->isr[i]);
        bytes_put_u32(out, lapic->tmr[i]);
    }
    bytes_put_u8(out, lapic->counting);
    bytes_put_u32(out, lapic->initial);
    bytes_put_u32(out, lapic->left);
    bytes_put_u64(out, lapic->since);
    bytes_put_u8(out, lapic->divide);
}

static bool restore_registers(struct lapic *lapic, struct cursor *in)
{
    bool good = true;

    lapic->base = cursor_u64(in);
    lapic->tpr = cursor_u8(in);
    lapic->ldr = cursor_u32(in);
    lapic->dfr = cursor_u32(in);
    lapic->svr = cursor_u32(in);
    lapic->icr = cursor_u32(in);
    lapic->icr_high = cursor_u32(in);
    for (unsigned i = 0; i < LVT_COUNT; i++) {
        lapic->lvt[i] = cursor_u32(in);
        good = good && !(lapic->lvt[i] & ~lvt_known[i]);
    }
    lapic->esr = cursor_u8(in);
    lapic->errors = cursor_u8(in);
    for (unsigned i = 0; i < 8; i++) {
        lapic->irr[i] = cursor_u32(in);
        lapic->isr[i] = cursor_u32(in);
        lapic->tmr[i] = cursor_u32(in);
    }
    return good && !((lapic->irr[0] | lapic->isr[0]) & 0xffff) &&
           (lapic->base & ~(BASE_BSP | BASE_ENABLED | BASE_X2APIC)) == APIC_BASE &&
           ((lapic->base & BASE_ENABLED) || !(lapic->base & BASE_X2APIC)) &&
           !(lapic->svr & ~SVR_KNOWN) && !(lapic->icr & ~ICR_KNOWN);
}

static bool restore_timer(struct lapic *lapic, struct cursor *in)
{
    const uint8_t counting = cursor_u8(in);

    lapic->counting = counting;
    lapic->initial = cursor_u32(in);
    lapic->left = cursor_u32(in);
    lapic->since = cursor_u64(in);
    lapic->divide = cursor_u8(in);
    return counting <= 1 && (!counting || (lapic->initial && lapic->left <= lapic->initial)) &&
           lapic->since < INT64_MAX && !(lapic->divide & ~0x0b);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct lapic *lapic = (struct lapic *)dev;

    if (cursor_u8(in) == STATE_VERSION && restore_registers(lapic, in) &&
        restore_timer(lapic, in) && !in->bad)
        return 0;
    lapic->base = APIC_BASE | BASE_ENABLED | (lapic->cpu ? 0 : BASE_BSP);
    lapic_reset(lapic);
    return -1;
}

static const struct device_ops lapic_ops = {
    .name = "lapic",
    .deadline = deadline,
    .poll = poll,
    .save = save,
    .restore = restore,
};

/* 11.4.7.1 and 11.4.7.3 */
void lapic_reset(struct lapic *lapic)
{
    *lapic = (struct lapic){
        .dev = lapic->dev,
        .bus = lapic->bus,
        .time = lapic->time,
        .cpu = lapic->cpu,
        .base = lapic->base,
        .dfr = UINT32_MAX,
        .svr = 0xff,
    };
    for (unsigned i = 0; i < LVT_COUNT; i++)
        lapic->lvt[i] = LVT_MASKED;
}

void lapic_init(struct lapic *lapic, struct apic_bus *bus, struct device_time *time)
{
    assert(bus->count < APIC_CPUS_MAX);
    *lapic = (struct lapic){
        .dev = {&lapic_ops},
        .bus = bus,
        .time = time,
        .cpu = bus->count,
        .base = APIC_BASE | BASE_ENABLED | (bus->count ? 0 : BASE_BSP),
    };
    bus->lapic[bus->count++] = lapic;
    lapic_reset(lapic);
}

void lapic_virtual_wire(struct lapic *lapic)
{
    lapic->svr = SVR_ENABLED | 0xff;
    lapic->lvt[LVT_LINT0] = APIC_EXTINT << 8;
    lapic->lvt[LVT_LINT1] = APIC_NMI << 8;
}
