#ifndef DEVICES_SERIAL_H
#define DEVICES_SERIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * A 16550A UART (National Semiconductor PC16550D data sheet) on a line that is always connected.
 * The transmitter is infinitely fast: a byte written is handed to tx before the write returns, and
 * the holding register is empty again. As on a PC, MCR.OUT2 gates the interrupt.
 *
 * Simplified: received bytes raise an interrupt at once, as "trigger level reached" or else as
 * "character timeout"; there are no line errors except overrun in loopback.
 */
#define SERIAL_COM1_PORT 0x3f8
#define SERIAL_COM1_IRQ  4

#define SERIAL_LCR_DLAB     0x80 /* data and interrupt enable are the divisor */
#define SERIAL_MCR_LOOPBACK 0x10
#define SERIAL_FIFO_BYTES   16

struct serial {
    struct device dev;
    struct irq_pin irq;
    void (*tx)(void *opaque, uint8_t byte); /* may be NULL: nobody listens */
    void *tx_opaque;
    uint8_t ier, fcr, lcr, mcr, scratch, divisor[2];
    uint8_t modem_deltas; /* MSR bits 0 to 3 */
    bool overrun;
    bool thr_empty_pending;
    uint8_t fifo[SERIAL_FIFO_BYTES]; /* received, oldest first */
    unsigned received;
};

void serial_init(struct serial *serial, struct irq_pin irq, void (*tx)(void *opaque, uint8_t byte),
                 void *tx_opaque);
/* Eight ports from base on. */
int serial_attach(struct serial *serial, struct bus *pio, uint16_t base, struct err *e);

/*
 * Bytes arrive on the line. Returns how many were accepted (the first ones); the caller keeps the
 * others and tries again after the guest has read. None are accepted while the guest has the
 * UART in loopback.
 */
size_t serial_receive(struct serial *serial, const uint8_t *data, size_t len);
/* How many bytes serial_receive would accept now. */
size_t serial_room(const struct serial *serial);

#endif
