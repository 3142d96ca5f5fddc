#include "devices/virtio/virtio_rng.h"

#define PIECE 4096u /* bytes of entropy asked for at a time */

static int serve(struct virtio_device *vd, const struct virtio_chain *chain, uint32_t *written)
{
    struct virtio_rng *rng = (struct virtio_rng *)vd;
    uint32_t wanted = chain->in_len < VIRTIO_RNG_MAX ? (uint32_t)chain->in_len : VIRTIO_RNG_MAX;
    uint8_t piece[PIECE];

    while (*written < wanted) {
        uint32_t n = wanted - *written < PIECE ? wanted - *written : PIECE;

        rng->entropy(rng->opaque, piece, n);
        if (virtio_write(vd, chain, *written, piece, n) < 0)
            return -1;
        *written += n;
    }
    return 0;
}

static void notify(struct virtio_device *vd, unsigned queue)
{
    virtio_serve(vd, queue, serve);
}

static const struct virtio_kind kind = {
    .id = VIRTIO_ID_ENTROPY,
    .pci_class = 0xff, /* fits no class */
    .queues = 1,
    .queue_size = 64,
    .notify = notify,
};

static const struct device_ops ops = {
    .name = "virtio-rng",
    .save = virtio_save,
    .restore = virtio_restore,
};

void virtio_rng_init(struct virtio_rng *rng, struct dma *dma,
                     void (*entropy)(void *opaque, void *buf, size_t len), void *opaque)
{
    virtio_init(&rng->vd, &ops, &kind, dma, 0, NULL, 0);
    rng->entropy = entropy;
    rng->opaque = opaque;
}
