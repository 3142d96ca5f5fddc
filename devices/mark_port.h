#ifndef DEVICES_MARK_PORT_H
#define DEVICES_MARK_PORT_H

#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "devices/bus.h"
#include "devices/device.h"

/*
 * A port by which a guest names the place where it is (docs/control.md): each byte written to it is
 * one of the mark's text, which a NUL or a line end completes. What is longer than MARK_MAX is cut,
 * and an empty text is no mark. The port reads as MARK_PORT_PRESENT, by which a program in the
 * guest knows that somebody listens.
 */
#define MARK_PORT         0xd170
#define MARK_PORT_PRESENT 0xd1

struct mark_pin {
    /* text: one harmless line (text_clean()) of 1 to MARK_MAX bytes. NULL: nobody listens. */
    void (*mark)(void *opaque, const char *text);
    void *opaque;
};

struct mark_port {
    struct device dev;
    struct mark_pin pin;
    uint8_t len; /* of what there is of the next one */
    char text[MARK_MAX + 1];
};

void mark_port_init(struct mark_port *port, struct mark_pin pin);
int mark_port_attach(struct mark_port *port, struct bus *pio, struct err *e);

#endif
