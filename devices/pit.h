#ifndef DEVICES_PIT_H
#define DEVICES_PIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * The interval timer of a PC: an Intel 8254 (data sheet 231164) at ports 0x40-0x43 and system
 * control port B at 0x61. Channel 0 drives IRQ 0 and its gate is always on; channel 2's gate and
 * output are bits 0 and 5 of port 0x61. The speaker makes no sound.
 *
 * All state is kept in ticks of the 8254's clock since the machine was made. A count is in force
 * from the tick after the one in which its last byte was written.
 */
#define PIT_HZ  1193182u
#define PIT_IRQ 0

struct pit_channel {
    uint8_t mode;   /* 0 to 5 */
    uint8_t access; /* 1: low byte, 2: high byte, 3: low byte, then high byte */
    bool bcd;
    bool gate;

    bool loaded;     /* the counting element holds a count */
    uint32_t count;  /* the count in force, 1 to 65536 */
    uint64_t start;  /* the tick from which it counts, while it is not held */
    bool held;       /* the gate, or half a count written, keeps it from counting */
    uint64_t passed; /* ticks counted before it was held */

    bool next_waits; /* modes 1, 2, 3, 5: a new count waits for the trigger or the period's end */
    uint32_t next_count;
    uint64_t switch_at; /* the tick at which it takes over (modes 2 and 3, counting) */

    bool write_high, read_high; /* the next byte of a two-byte access is the high one */
    uint8_t written_low;
    bool status_latched;
    uint8_t latched_status;
    uint8_t latched_bytes; /* of the latched count still to be read: 0, 1 or 2 */
    uint16_t latched_count;
};

struct pit {
    struct device dev;
    struct irq_pin irq;
    struct device_time *time;
    struct pit_channel channel[3];
    uint64_t seen;  /* the tick up to which everything has been worked out */
    bool line;      /* level of IRQ 0 as last set */
    uint8_t port_b; /* bits 0 to 3 as written */
};

/* Restoring a state needs the device time of the saved machine in *time already. */
void pit_init(struct pit *pit, struct irq_pin irq, struct device_time *time);
int pit_attach(struct pit *pit, struct bus *pio, struct err *e);

#endif
