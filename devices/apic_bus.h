#ifndef DEVICES_APIC_BUS_H
#define DEVICES_APIC_BUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"

/*
 * What connects the local APICs with each other and with the IOAPIC (Intel SDM vol. 3, 11.6 and
 * 11.11): interrupt messages, and the page at 0xfee00000, at which every CPU sees its own APIC.
 */
#define APIC_CPUS_MAX  8u
#define APIC_BASE      0xfee00000u
#define APIC_BROADCAST UINT32_MAX /* as a destination */

struct lapic;
struct ioapic;

/* Delivery modes, as they are encoded in ICR, LVT and redirection entries. */
enum apic_mode {
    APIC_FIXED = 0,
    APIC_LOWEST_PRIORITY = 1,
    APIC_SMI = 2,
    APIC_NMI = 4,
    APIC_INIT = 5,
    APIC_STARTUP = 6,
    APIC_EXTINT = 7,
};

struct apic_message {
    enum apic_mode mode;
    uint8_t vector;
    bool level;   /* triggered by level: its EOI is told to the IOAPIC */
    bool logical; /* how `destination` is meant */
    uint32_t destination;
};

/* What a CPU is to do besides taking interrupts. */
enum cpu_request {
    CPU_INIT,    /* stop, and wait for CPU_STARTUP */
    CPU_STARTUP, /* if it waits for that: start in real mode at vector << 12 */
    CPU_NMI,
};

/* Where requests go; send may be NULL (then they are lost). */
struct cpu_request_pin {
    void (*send)(void *opaque, unsigned cpu, enum cpu_request request, uint8_t vector);
    void *opaque;
};

struct apic_bus {
    struct lapic *lapic[APIC_CPUS_MAX]; /* by number of the CPU, which is also the APIC ID */
    unsigned count;
    struct ioapic *ioapic; /* or NULL */
    struct cpu_request_pin requests;
    unsigned accessing; /* the CPU whose access is being served (pc_serve()) */
    uint32_t signalled; /* bit n: CPU n was sent something; for who schedules, who clears it */
};

void apic_bus_init(struct apic_bus *bus, struct cpu_request_pin requests);
/* The page at APIC_BASE. */
int apic_bus_attach(struct apic_bus *bus, struct bus *mmio, struct err *e);

/* A message for whom it is meant. */
void apic_bus_send(struct apic_bus *bus, const struct apic_message *message);
/* The same by its shorthand (ICR bits 19:18): to all but `except` (UINT_MAX: to all). */
void apic_bus_send_all(struct apic_bus *bus, const struct apic_message *message, unsigned except);
/* For one CPU. */
void apic_bus_send_one(struct apic_bus *bus, const struct apic_message *message, unsigned cpu);
/* A CPU has ended the service of an interrupt that was triggered by level. */
void apic_bus_eoi(struct apic_bus *bus, uint8_t vector);

#endif
