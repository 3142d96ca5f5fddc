#ifndef DEVICES_I8042_H
#define DEVICES_I8042_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/bus.h"
#include "devices/device.h"
#include "devices/device_request.h"

/*
 * What is left of the keyboard controller (ports 0x60, 0x64) on a machine without a keyboard, and
 * system control port A (0x92): two ways to reset a PC, and answers from which an operating system
 * concludes at once that nothing is there.
 *
 * The status register reads 0xfd: "output buffer full" for ever, which no controller can be, and
 * "input buffer empty", so that nobody waits before he writes the reset command. An absent
 * controller (0xff) would make Linux poll 65,536 times before a reboot, and a quiet one (0) would
 * make it wait half a second for the answer to each command of its probe.
 */
struct i8042 {
    struct device dev;
    struct machine_request_pin requests;
    bool a20; /* port 0x92 bit 1, kept for reading back; A20 is never masked */
};

void i8042_init(struct i8042 *dev, struct machine_request_pin requests);
int i8042_attach(struct i8042 *dev, struct bus *pio, struct err *e);

#endif
