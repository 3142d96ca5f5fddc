#include "devices/ioapic.h"

#include <assert.h>

#define PAGE    0x1000u
#define VERSION (0x11u | (IOAPIC_PINS - 1) << 16)

/* Registers of the page, and those that IOREGSEL selects. */
enum { IOREGSEL = 0x00, IOWIN = 0x10 };
enum { REG_ID = 0, REG_VERSION = 1, REG_ARBITRATION = 2, REG_ENTRIES = 0x10 };

#define ENTRY_LOGICAL    (1ull << 11)
#define ENTRY_PENDING    (1ull << 12) /* read-only; never seen set: messages arrive at once */
#define ENTRY_REMOTE_IRR (1ull << 14) /* read-only */
#define ENTRY_LEVEL      (1ull << 15)
#define ENTRY_MASKED     (1ull << 16)
#define ENTRY_WRITABLE   (0xff0000000001ffffull & ~(ENTRY_PENDING | ENTRY_REMOTE_IRR))
#define ENTRY_VECTOR(e)  ((uint8_t)(e))
#define ENTRY_MODE(e)    ((enum apic_mode)((e) >> 8 & 7))
#define ENTRY_TARGET(e)  ((uint32_t)((e) >> 56))

static void send(struct ioapic *ioapic, unsigned pin)
{
    const uint64_t entry = ioapic->entry[pin];
    const uint32_t target = ENTRY_TARGET(entry);

    apic_bus_send(ioapic->bus, &(struct apic_message){
                                   .mode = ENTRY_MODE(entry),
                                   .vector = ENTRY_VECTOR(entry),
                                   .level = entry & ENTRY_LEVEL,
                                   .logical = entry & ENTRY_LOGICAL,
                                   .destination = target == 0xff ? APIC_BROADCAST : target,
                               });
}

/* A pin that is triggered by level and asserts is sent once until its EOI. */
static void serve_level(struct ioapic *ioapic, unsigned pin)
{
    uint64_t *entry = &ioapic->entry[pin];

    if (!(ioapic->lines >> pin & 1) || !(*entry & ENTRY_LEVEL) ||
        (*entry & (ENTRY_MASKED | ENTRY_REMOTE_IRR)))
        return;
    *entry |= ENTRY_REMOTE_IRR;
    send(ioapic, pin);
}

void ioapic_set(void *opaque, unsigned pin, bool level)
{
    struct ioapic *ioapic = opaque;
    const uint32_t bit = 1u << pin;

    assert(pin < IOAPIC_PINS);
    const bool rises = level && !(ioapic->lines & bit);
    ioapic->lines = level ? ioapic->lines | bit : ioapic->lines & ~bit;
    /* An edge that comes while its pin is masked is lost (3.2.4, "interrupt mask"). */
    if (ioapic->entry[pin] & ENTRY_LEVEL)
        serve_level(ioapic, pin);
    else if (rises && !(ioapic->entry[pin] & ENTRY_MASKED))
        send(ioapic, pin);
}

void ioapic_eoi(struct ioapic *ioapic, uint8_t vector)
{
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++) {
        uint64_t *entry = &ioapic->entry[pin];
        if (ENTRY_VECTOR(*entry) != vector || !(*entry & ENTRY_REMOTE_IRR))
            continue;
        *entry &= ~ENTRY_REMOTE_IRR;
        serve_level(ioapic, pin);
    }
}

/* ---- registers ---- */

static void write_entry(struct ioapic *ioapic, unsigned pin, uint64_t value)
{
    uint64_t *entry = &ioapic->entry[pin];
    const uint64_t remote_irr = *entry & value & ENTRY_LEVEL ? *entry & ENTRY_REMOTE_IRR : 0;

    *entry = (value & ENTRY_WRITABLE) | remote_irr;
    serve_level(ioapic, pin);
}

static uint32_t read_register(const struct ioapic *ioapic)
{
    const unsigned n = ioapic->select - REG_ENTRIES;

    switch (ioapic->select) {
    case REG_ID:
    case REG_ARBITRATION:
        return (uint32_t)ioapic->id << 24;
    case REG_VERSION:
        return VERSION;
    default:
        return n < 2 * IOAPIC_PINS ? (uint32_t)(ioapic->entry[n / 2] >> (n % 2 * 32)) : UINT32_MAX;
    }
}

static void write_register(struct ioapic *ioapic, uint32_t value)
{
    const unsigned n = ioapic->select - REG_ENTRIES;

    if (ioapic->select == REG_ID)
        ioapic->id = value >> 24 & 15;
    if (n >= 2 * IOAPIC_PINS)
        return;
    const uint64_t entry = ioapic->entry[n / 2];
    write_entry(ioapic, n / 2,
                n % 2 ? (uint32_t)entry | (uint64_t)value << 32
                      : (entry & ~(uint64_t)UINT32_MAX) | value);
}

static uint64_t read_page(void *dev, uint64_t offset, unsigned size)
{
    const struct ioapic *ioapic = dev;

    (void)size;
    if (offset == IOREGSEL)
        return ioapic->select;
    return offset == IOWIN ? read_register(ioapic) : 0;
}

static void write_page(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct ioapic *ioapic = dev;

    if (offset == IOREGSEL)
        ioapic->select = (uint8_t)value;
    else if (offset == IOWIN && size == 4)
        write_register(ioapic, (uint32_t)value);
}

int ioapic_attach(struct ioapic *ioapic, struct bus *mmio, struct err *e)
{
    static const struct bus_ops ops = {read_page, write_page};
    const struct bus_range range = {
        .base = IOAPIC_BASE, .size = PAGE, .ops = &ops, .dev = ioapic, .name = "IOAPIC"};

    return bus_add(mmio, &range, e);
}

/* ---- the device ---- */

#define STATE_VERSION 1

static void reset(struct ioapic *ioapic)
{
    ioapic->select = 0;
    ioapic->lines = 0;
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        ioapic->entry[pin] = ENTRY_MASKED;
}

static void save(const struct device *dev, struct bytes *out)
{
    const struct ioapic *ioapic = (const struct ioapic *)dev;

    bytes_put_u8(out, STATE_VERSION);
    bytes_put_u8(out, ioapic->select);
    bytes_put_u8(out, ioapic->id);
    bytes_put_u32(out, ioapic->lines);
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        bytes_put_u64(out, ioapic->entry[pin]);
}

static int restore(struct device *dev, struct cursor *in)
{
    struct ioapic *ioapic = (struct ioapic *)dev;
    bool good = cursor_u8(in) == STATE_VERSION;

    ioapic->select = cursor_u8(in);
    ioapic->id = cursor_u8(in);
    ioapic->lines = cursor_u32(in);
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++) {
        const uint64_t entry = cursor_u64(in);
        ioapic->entry[pin] = entry;
        good = good && !(entry & ~(ENTRY_WRITABLE | ENTRY_REMOTE_IRR)) &&
               ((entry & ENTRY_LEVEL) || !(entry & ENTRY_REMOTE_IRR));
    }
    if (good && !in->bad && !(ioapic->lines >> IOAPIC_PINS) && ioapic->id < 16)
        return 0;
    ioapic->id &= 15;
    reset(ioapic);
    return -1;
}

static const struct device_ops ioapic_ops = {.name = "ioapic", .save = save, .restore = restore};

void ioapic_init(struct ioapic *ioapic, struct apic_bus *bus, uint8_t id)
{
    *ioapic = (struct ioapic){.dev = {&ioapic_ops}, .bus = bus, .id = id};
    bus->ioapic = ioapic;
    reset(ioapic);
}
