#ifndef TESTS_UNIT_DEVICES_VIRTIO_VIRTIO_RINGS_H
#define TESTS_UNIT_DEVICES_VIRTIO_VIRTIO_RINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/virtio.h"
#include "tests/unit/random.h"

/*
 * The driver's side of virtio for the unit tests: guest memory of 1 MiB at 0 behind a struct dma,
 * and one split ring in it with the layout
 *     descriptors at 0x1000, available at 0x3000, used at 0x4000; buffers from 0x10000 on.
 */
#define RAM_BYTES  (1u << 20)
#define RING_DESC  0x1000u
#define RING_AVAIL 0x3000u
#define RING_USED  0x4000u
#define RING_TABLE 0x8000u /* an indirect table */
#define RING_DATA  0x10000u

#define D_NEXT     1u
#define D_WRITE    2u
#define D_INDIRECT 4u

struct ram {
    struct dma dma;
    uint8_t *bytes;          /* exactly RAM_BYTES from malloc: the sanitizer sees any overrun */
    uint64_t written, reads; /* bytes; calls */
};

static inline bool ram_has(uint64_t gpa, size_t len)
{
    return gpa <= RAM_BYTES && len <= RAM_BYTES - gpa;
}

static inline int ram_read(struct dma *dma, uint64_t gpa, void *data, size_t len)
{
    struct ram *ram = (struct ram *)dma;

    if (!ram_has(gpa, len))
        return -1;
    memcpy(data, ram->bytes + gpa, len);
    ram->reads++;
    return 0;
}

static inline int ram_write(struct dma *dma, uint64_t gpa, const void *data, size_t len)
{
    struct ram *ram = (struct ram *)dma;

    if (!ram_has(gpa, len))
        return -1;
    memcpy(ram->bytes + gpa, data, len);
    ram->written += len;
    return 0;
}

static inline void ram_init(struct ram *ram)
{
    ram->dma = (struct dma){.read = ram_read, .peek = ram_read, .write = ram_write};
    ram->bytes = calloc(1, RAM_BYTES);
    ram->written = ram->reads = 0;
    if (!ram->bytes)
        abort();
}

static inline void ram_free(struct ram *ram)
{
    free(ram->bytes);
}

static inline void put(struct ram *ram, uint64_t gpa, unsigned size, uint64_t value)
{
    for (unsigned i = 0; i < size; i++)
        ram->bytes[gpa + i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t get(const struct ram *ram, uint64_t gpa, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size; i++)
        value |= (uint64_t)ram->bytes[gpa + i] << (8 * i);
    return value;
}

/* Descriptor `index` of the table at `table`. */
static inline void put_desc(struct ram *ram, uint64_t table, unsigned index, uint64_t gpa,
                            uint32_t len, unsigned flags, unsigned next)
{
    uint64_t at = table + 16 * (uint64_t)index;

    put(ram, at, 8, gpa);
    put(ram, at + 8, 4, len);
    put(ram, at + 12, 2, flags);
    put(ram, at + 14, 2, next);
}

/* Make the chain that starts at `head` available in a ring of `size` elements. */
static inline void put_avail(struct ram *ram, unsigned size, unsigned head)
{
    uint16_t index = (uint16_t)get(ram, RING_AVAIL + 2, 2);

    put(ram, RING_AVAIL + 4 + 2 * (index % size), 2, head);
    put(ram, RING_AVAIL + 2, 2, index + 1u);
}

static inline uint16_t used_index(const struct ram *ram)
{
    return (uint16_t)get(ram, RING_USED + 2, 2);
}

static inline uint32_t used_id(const struct ram *ram, unsigned slot)
{
    return (uint32_t)get(ram, RING_USED + 4 + 8 * slot, 4);
}

static inline uint32_t used_len(const struct ram *ram, unsigned slot)
{
    return (uint32_t)get(ram, RING_USED + 8 + 8 * slot, 4);
}

/* What a driver does up to DRIVER_OK, with queue 0 of `size` elements. */
static inline void drive(struct virtio_device *vd, uint64_t features, unsigned size)
{
    virtio_set_status(vd, 0);
    virtio_set_status(vd, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    for (unsigned half = 0; half < 2; half++) {
        vd->accepted_select = half;
        virtio_accept(vd, (uint32_t)(features >> (32 * half)));
    }
    virtio_set_status(vd, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK);
    vd->queue_select = 0;
    virtio_set_queue_size(vd, (uint16_t)size);
    vd->queue[0].desc = RING_DESC;
    vd->queue[0].avail = RING_AVAIL;
    vd->queue[0].used = RING_USED;
    virtio_enable_queue(vd);
    virtio_set_status(vd,
                      VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK | VIRTIO_DRIVER_OK);
}

#endif
