#include "devices/apic_bus.h"

#include <assert.h>

#include "devices/ioapic.h"
#include "devices/lapic.h"

#define PAGE 0x1000u

void apic_bus_init(struct apic_bus *bus, struct cpu_request_pin requests)
{
    *bus = (struct apic_bus){.requests = requests};
}

static void request(struct apic_bus *bus, unsigned cpu, enum cpu_request what, uint8_t vector)
{
    if (bus->requests.send)
        bus->requests.send(bus->requests.opaque, cpu, what, vector);
}

void apic_bus_send_one(struct apic_bus *bus, const struct apic_message *message, unsigned cpu)
{
    assert(cpu < bus->count);
    bus->signalled |= 1u << cpu;
    switch (message->mode) {
    case APIC_FIXED:
    case APIC_LOWEST_PRIORITY:
        lapic_accept(bus->lapic[cpu], message->vector, message->level);
        break;
    case APIC_NMI:
        request(bus, cpu, CPU_NMI, 0);
        break;
    case APIC_INIT:
        lapic_reset(bus->lapic[cpu]);
        request(bus, cpu, CPU_INIT, 0);
        break;
    case APIC_STARTUP:
        request(bus, cpu, CPU_STARTUP, message->vector);
        break;
    case APIC_SMI:    /* there is no system management mode */
    case APIC_EXTINT: /* the 8259 is wired to LINT0, not to the IOAPIC */
        break;
    }
}

/* 11.6.2.4: to the one with the lowest processor priority. */
static void send_to_lowest(struct apic_bus *bus, const struct apic_message *message)
{
    unsigned best = bus->count;

    for (unsigned cpu = 0; cpu < bus->count; cpu++) {
        const struct lapic *lapic = bus->lapic[cpu];
        if (lapic_is_enabled(lapic) &&
            lapic_is_meant(lapic, message->logical, message->destination) &&
            (best == bus->count || lapic_priority(lapic) < lapic_priority(bus->lapic[best])))
            best = cpu;
    }
    if (best < bus->count)
        apic_bus_send_one(bus, message, best);
}

void apic_bus_send(struct apic_bus *bus, const struct apic_message *message)
{
    if (message->mode == APIC_LOWEST_PRIORITY) {
        send_to_lowest(bus, message);
        return;
    }
    for (unsigned cpu = 0; cpu < bus->count; cpu++)
        if (lapic_is_meant(bus->lapic[cpu], message->logical, message->destination))
            apic_bus_send_one(bus, message, cpu);
}

void apic_bus_send_all(struct apic_bus *bus, const struct apic_message *message, unsigned except)
{
    for (unsigned cpu = 0; cpu < bus->count; cpu++)
        if (cpu != except)
            apic_bus_send_one(bus, message, cpu);
}

void apic_bus_eoi(struct apic_bus *bus, uint8_t vector)
{
    if (bus->ioapic)
        ioapic_eoi(bus->ioapic, vector);
}

/* Accesses are of 32 bits, at multiples of 16 (11.4.1); what others do is not defined. */
static uint64_t read_page(void *dev, uint64_t offset, unsigned size)
{
    struct apic_bus *bus = dev;

    assert(bus->accessing < bus->count);
    return size == 4 && offset % 16 == 0
               ? lapic_read(bus->lapic[bus->accessing], (unsigned)offset / 16)
               : 0;
}

static void write_page(void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    struct apic_bus *bus = dev;

    assert(bus->accessing < bus->count);
    if (size == 4 && offset % 16 == 0)
        lapic_write(bus->lapic[bus->accessing], (unsigned)offset / 16, (uint32_t)value);
}

int apic_bus_attach(struct apic_bus *bus, struct bus *mmio, struct err *e)
{
    static const struct bus_ops ops = {read_page, write_page};
    const struct bus_range range = {
        .base = APIC_BASE, .size = PAGE, .ops = &ops, .dev = bus, .name = "local APIC"};

    return bus_add(mmio, &range, e);
}
