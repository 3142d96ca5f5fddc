#ifndef DEVICES_VIRTIO_VIRTIO_RNG_H
#define DEVICES_VIRTIO_VIRTIO_RNG_H

#include "devices/virtio/virtio.h"

/*
 * The entropy device (Virtio 1.2, section 5.4): fills the driver's buffers, at most
 * VIRTIO_RNG_MAX bytes of each, with what entropy(opaque, buf, len) gives.
 */
#define VIRTIO_RNG_MAX 65536u

struct virtio_rng {
    struct virtio_device vd;
    void (*entropy)(void *opaque, void *buf, size_t len);
    void *opaque;
};

void virtio_rng_init(struct virtio_rng *rng, struct dma *dma,
                     void (*entropy)(void *opaque, void *buf, size_t len), void *opaque);

#endif
