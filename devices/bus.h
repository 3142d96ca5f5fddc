#ifndef DEVICES_BUS_H
#define DEVICES_BUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * An address space (port I/O or MMIO) with device ranges that may not overlap.
 *
 * An access that no range covers whole reads as all ones and writes nothing, as on a PC.
 * What a device sees: size is 1, 2, 4 (or 8 for MMIO); offset is relative to the range's base and
 * offset + size never passes its end.
 */
struct bus_ops {
    uint64_t (*read)(void *dev, uint64_t offset, unsigned size);
    void (*write)(void *dev, uint64_t offset, unsigned size, uint64_t value);
};

/* What a CPU does to an address space: count accesses of size bytes each to the same address (more
 * than one by REP INS and OUTS), one behind the other in data. */
struct bus_access {
    unsigned cpu; /* whose it is: each sees its own local APIC */
    bool mmio;    /* else port I/O */
    bool write;
    uint64_t at;
    unsigned size, count;
    uint8_t *data; /* what is written, or to be filled */
};

#define BUS_MAX_RANGES 64

struct bus_range {
    uint64_t base, size;
    const struct bus_ops *ops;
    void *dev;
    const char *name; /* static; shown in errors and by info */
};

struct bus {
    struct bus_range ranges[BUS_MAX_RANGES]; /* sorted by base */
    unsigned count;
};

/* Add a range; fails when it is empty, wraps, overlaps another or the table is full. */
int bus_add(struct bus *bus, const struct bus_range *range, struct err *e);
/* Remove the range that starts at base, if there is one (a PCI BAR being moved). */
void bus_remove(struct bus *bus, uint64_t base);
/* size is 1 to 8: a guest's access that crosses the edge of a page comes in two parts of any size.
 */
uint64_t bus_read(const struct bus *bus, uint64_t addr, unsigned size);
void bus_write(const struct bus *bus, uint64_t addr, unsigned size, uint64_t value);

#endif
