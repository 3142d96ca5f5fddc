#ifndef DEVICES_VIRTIO_VIRTIO_BYTES_H
#define DEVICES_VIRTIO_VIRTIO_BYTES_H

#include <stdint.h>

/* What lies in rings, requests and headers: little-endian numbers of `size` bytes, at most 8. */
static inline uint64_t get_le(const uint8_t *at, unsigned size)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < size; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

static inline void put_le(uint8_t *at, unsigned size, uint64_t v)
{
    for (unsigned i = 0; i < size; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

#endif
