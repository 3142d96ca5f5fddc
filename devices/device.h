#ifndef DEVICES_DEVICE_H
#define DEVICES_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * What every device is to the machine. Devices are driven by one thread and never block: accesses
 * come through the bus, time through poll(), interrupts go out through an irq_pin.
 *
 * Time is *device time*: ns since the machine was made, never read from the host by a device; it is
 * handed in through struct device_time. Device models exist only while recording (or running
 * plainly); a replay has none (docs: ARCHITECTURE.md, "The boundary").
 */
#define NEVER UINT64_MAX

struct device;

struct device_ops {
    const char *name;
    /* When poll() must next run, in ns of device time, or NEVER. NULL: never. */
    uint64_t (*deadline)(const struct device *dev);
    /* Bring the device up to `now`: expire timers, move lines. May be called early and often. */
    void (*poll)(struct device *dev, uint64_t now);
    /* Everything needed to go on from here, in a format of the device's own with a version byte. */
    void (*save)(const struct device *dev, struct bytes *out);
    /* The reverse; 0, or -1 when the bytes are not such a state (the device is then reset). */
    int (*restore)(struct device *dev, struct cursor *in);
};

/* First member of every device's own struct. */
struct device {
    const struct device_ops *ops;
};

/* The clock devices see. `now` is monotonic ns; `wall` is ns since 1970 UTC (for the RTC). */
struct device_time {
    uint64_t (*now)(struct device_time *t);
    uint64_t (*wall)(struct device_time *t);
};

/* One interrupt wire. set(level): true asserts. Level-triggered users keep it asserted. */
struct irq_pin {
    void (*set)(void *chip, unsigned irq, bool level);
    void *chip;
    unsigned irq;
};

static inline void irq_pin_set(const struct irq_pin *pin, bool level)
{
    if (pin->set)
        pin->set(pin->chip, pin->irq, level);
}

#endif
