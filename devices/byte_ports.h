#ifndef DEVICES_BYTE_PORTS_H
#define DEVICES_BYTE_PORTS_H

#include <stdint.h>

/*
 * An eight-bit device on a wider bus: the ISA bridge turns a wide access into byte accesses to
 * consecutive ports, lowest first.
 */
static inline uint64_t byte_ports_read(uint8_t (*read)(void *dev, unsigned port), void *dev,
                                       uint64_t offset, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size; i++)
        value |= (uint64_t)read(dev, (unsigned)offset + i) << (8 * i);
    return value;
}

static inline void byte_ports_write(void (*write)(void *dev, unsigned port, uint8_t value),
                                    void *dev, uint64_t offset, unsigned size, uint64_t value)
{
    for (unsigned i = 0; i < size; i++)
        write(dev, (unsigned)offset + i, (uint8_t)(value >> (8 * i)));
}

#endif
