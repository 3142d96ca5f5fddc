#ifndef DEVICES_VIRTIO_VIRTIO_BLK_H
#define DEVICES_VIRTIO_VIRTIO_BLK_H

#include "devices/disk/disk.h"
#include "devices/virtio/blk_request.h"
#include "devices/virtio/virtio.h"

/*
 * The block device (Virtio 1.2, section 5.2) over a struct disk, one queue. Read-only exactly when
 * the disk is; otherwise it has a volatile write cache (FLUSH), DISCARD and WRITE_ZEROES.
 *
 * Requests are taken at the doorbell, with what they write. They are completed in the same order,
 * as soon as the link says so: at the doorbell, or later, where the machine stands at a sync point.
 */
#define VIRTIO_BLK_F_SIZE_MAX     (1ull << 1)
#define VIRTIO_BLK_F_SEG_MAX      (1ull << 2)
#define VIRTIO_BLK_F_RO           (1ull << 5)
#define VIRTIO_BLK_F_BLK_SIZE     (1ull << 6)
#define VIRTIO_BLK_F_FLUSH        (1ull << 9)
#define VIRTIO_BLK_F_DISCARD      (1ull << 13)
#define VIRTIO_BLK_F_WRITE_ZEROES (1ull << 14)

#define VIRTIO_BLK_CONFIG_BYTES 60
/* At most so many requests are taken and not completed yet; and none is taken while those have so
 * much data. The others stay in the driver's ring. */
#define VIRTIO_BLK_REQUESTS 32u
#define VIRTIO_BLK_HELD_MAX (16u << 20)

struct virtio_blk {
    struct virtio_device vd;
    struct disk *disk;
    struct block_link *link;
    char serial[BLK_ID_BYTES]; /* padded with zeroes */
    uint8_t config[VIRTIO_BLK_CONFIG_BYTES];
    /* Those taken and not completed: `count` of them from `first` on, in a ring. */
    struct blk_request request[VIRTIO_BLK_REQUESTS];
    unsigned first, count;
    uint32_t held; /* bytes of their data */
};

/* `disk` and `link` stay the caller's and must outlive the device; serial is cut to 20 bytes. */
void virtio_blk_init(struct virtio_blk *blk, struct dma *dma, struct disk *disk,
                     struct block_link *link, const char *serial);
/* Free what requests hold, of a device whose jobs are done. */
void virtio_blk_close(struct virtio_blk *blk);

/* Whether a request could be completed. Any time: it only looks. */
bool virtio_blk_has_done(const struct virtio_blk *blk);
/* The machine stands at a sync point: those that the link says are completed, and what waits in the
 * ring is gone on with. */
void virtio_blk_complete(struct virtio_blk *blk);

#endif
