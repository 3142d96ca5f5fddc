#include "devices/bus.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* The index of the first range that starts above addr. */
static unsigned first_above(const struct bus *bus, uint64_t addr)
{
    unsigned low = 0, high = bus->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (bus->ranges[middle].base <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t last_address(const struct bus_range *range)
{
    return range->base + (range->size - 1);
}

static int refuse_overlap(const struct bus_range *range, const struct bus_range *other,
                          struct err *e)
{
    return err_set(e, STATUS_ERROR,
                   "%s at 0x%" PRIx64 "-0x%" PRIx64 " overlaps %s at 0x%" PRIx64 "-0x%" PRIx64
                   "; move one of them",
                   range->name, range->base, last_address(range), other->name, other->base,
                   last_address(other));
}

int bus_add(struct bus *bus, const struct bus_range *range, struct err *e)
{
    assert(range->ops && range->ops->read && range->ops->write && range->name);
    if (!range->size || last_address(range) < range->base)
        return err_set(e, STATUS_ERROR,
                       "%s has no valid address range (base 0x%" PRIx64 ", 0x%" PRIx64
                       " bytes); give one that is not empty and does not wrap",
                       range->name, range->base, range->size);

    unsigned at = first_above(bus, range->base);
    if (at > 0 && last_address(&bus->ranges[at - 1]) >= range->base)
        return refuse_overlap(range, &bus->ranges[at - 1], e);
    if (at < bus->count && last_address(range) >= bus->ranges[at].base)
        return refuse_overlap(range, &bus->ranges[at], e);
    if (bus->count == BUS_MAX_RANGES)
        return err_set(e, STATUS_ERROR,
                       "no room for %s: the bus holds %d device ranges; use fewer devices",
                       range->name, BUS_MAX_RANGES);

    memmove(&bus->ranges[at + 1], &bus->ranges[at], (bus->count - at) * sizeof(*bus->ranges));
    bus->ranges[at] = *range;
    bus->count++;
    return 0;
}

void bus_remove(struct bus *bus, uint64_t base)
{
    unsigned above = first_above(bus, base);

    if (!above || bus->ranges[above - 1].base != base)
        return;
    memmove(&bus->ranges[above - 1], &bus->ranges[above],
            (bus->count - above) * sizeof(*bus->ranges));
    bus->count--;
}

/* The range that covers all of [addr, addr + size), or NULL. */
static const struct bus_range *find(const struct bus *bus, uint64_t addr, unsigned size)
{
    unsigned above = first_above(bus, addr);
    if (!above)
        return NULL;
    const struct bus_range *range = &bus->ranges[above - 1];
    uint64_t offset = addr - range->base;
    return offset < range->size && range->size - offset >= size ? range : NULL;
}

static uint64_t size_mask(unsigned size)
{
    return UINT64_MAX >> (64 - 8 * size);
}

/* Devices know accesses of 1, 2, 4 and 8 bytes. KVM makes others of one that crosses the edge of a
 * page: those come to them in pieces, the largest first. */
static unsigned piece_of(unsigned size)
{
    unsigned piece = 8;

    while (piece > size)
        piece /= 2;
    return piece;
}

static uint64_t read_piece(const struct bus *bus, uint64_t addr, unsigned size)
{
    const struct bus_range *range = find(bus, addr, size);
    const uint64_t value =
        range ? range->ops->read(range->dev, addr - range->base, size) : UINT64_MAX;

    return value & size_mask(size);
}

uint64_t bus_read(const struct bus *bus, uint64_t addr, unsigned size)
{
    uint64_t value = 0;

    assert(size >= 1 && size <= 8);
    for (unsigned done = 0; done < size; done += piece_of(size - done))
        value |= read_piece(bus, addr + done, piece_of(size - done)) << 8 * done;
    return value;
}

void bus_write(const struct bus *bus, uint64_t addr, unsigned size, uint64_t value)
{
    assert(size >= 1 && size <= 8);
    for (unsigned done = 0; done < size; done += piece_of(size - done)) {
        const unsigned piece = piece_of(size - done);
        const struct bus_range *range = find(bus, addr + done, piece);
        if (range)
            range->ops->write(range->dev, addr + done - range->base, piece,
                              value >> 8 * done & size_mask(piece));
    }
}
