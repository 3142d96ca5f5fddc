#ifndef DEVICES_IOAPIC_H
#define DEVICES_IOAPIC_H

#include <stdint.h>

#include "devices/apic_bus.h"
#include "devices/device.h"

/*
 * Intel 82093AA I/O APIC (data sheet 290566), version 0x11: 24 pins, each with a redirection entry
 * that makes a message for local APICs of its interrupt. Wires are high when they assert,
 * whatever polarity an entry says: that is how board and driver agree.
 */
#define IOAPIC_PINS 24u
#define IOAPIC_BASE 0xfec00000u
/* The 8254 is wired to pin 2, where the 8259s have their cascade; all other IRQs have their own
 * number (the MADT says so). */
#define IOAPIC_TIMER_PIN 2u

struct ioapic {
    struct device dev;
    struct apic_bus *bus;
    uint8_t select, id;
    uint32_t lines;              /* bit n: pin n asserts */
    uint64_t entry[IOAPIC_PINS]; /* as 3.2.4 has them */
};

/* Power-on state: everything masked. */
void ioapic_init(struct ioapic *ioapic, struct apic_bus *bus, uint8_t id);
int ioapic_attach(struct ioapic *ioapic, struct bus *mmio, struct err *e);

/* irq_pin's set, by pin; opaque is a struct ioapic. */
void ioapic_set(void *opaque, unsigned pin, bool level);

/* A CPU ended an interrupt with this vector, triggered by level. */
void ioapic_eoi(struct ioapic *ioapic, uint8_t vector);

#endif
