#ifndef DEVICES_IRQCHIP_H
#define DEVICES_IRQCHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * The interrupt controller of a PC: two Intel 8259A (data sheet 231468) in cascade, the second on
 * IRQ 2 of the first, and the edge/level control registers of the PCI-ISA bridges (ELCR: Intel
 * 82371AB data sheet 290562, 4.2.4). Ports 0x20-0x21, 0xa0-0xa1, 0x4d0-0x4d1.
 *
 * The level of INTR is a pure function of the state: the owner of the vCPU asks for it before every
 * entry, and acknowledges exactly when it injects the vector.
 */
#define IRQCHIP_LINES 16

struct pic {
    uint8_t line;  /* level of the eight inputs */
    uint8_t latch; /* edges seen and not yet acknowledged, while the input stays high */
    uint8_t elcr;  /* 1: this input is level triggered */
    uint8_t isr, imr;
    uint8_t vector_base;
    uint8_t top;       /* the input with the highest priority; the others follow cyclically */
    uint8_t icw_next;  /* the initialization word expected next (2 to 4), 0 when initialized */
    bool icw3_follows; /* ICW1.SNGL was 0 */
    bool icw4_follows;
    bool reads_isr; /* OCW3: what a read of the command port gives */
    bool poll;      /* OCW3: the next read acknowledges */
    bool special_mask, special_nested, auto_eoi, rotate_on_auto_eoi;
};

struct irqchip {
    struct device dev;
    struct pic pic[2]; /* IRQ 0-7, IRQ 8-15 */
};

/* Power-on state: everything masked. */
void irqchip_init(struct irqchip *chip);
int irqchip_attach(struct irqchip *chip, struct bus *pio, struct err *e);

/* The wire of one IRQ, 0 to 15. IRQ 2 is the cascade: its wire leads nowhere. */
struct irq_pin irqchip_pin(struct irqchip *chip, unsigned irq);
/* irq_pin's set; chip is a struct irqchip. */
void irqchip_set(void *chip, unsigned irq, bool level);

/* The INTR output. */
bool irqchip_pending(const struct irqchip *chip);
/*
 * The interrupt acknowledge cycle: the vector to deliver. Without anything pending it is the
 * spurious one, IRQ 7's, and nothing comes into service.
 */
uint8_t irqchip_acknowledge(struct irqchip *chip);

#endif
