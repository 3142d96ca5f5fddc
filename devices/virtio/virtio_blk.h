#ifndef DEVICES_VIRTIO_VIRTIO_BLK_H
#define DEVICES_VIRTIO_VIRTIO_BLK_H

#include "devices/disk/disk.h"
#include "devices/virtio/virtio.h"

/*
 * The block device (Virtio 1.2, section 5.2) over a struct disk, one queue. Read-only exactly when
 * the disk is; otherwise it has a volatile write cache (FLUSH), DISCARD and WRITE_ZEROES.
 */
#define VIRTIO_BLK_F_SIZE_MAX     (1ull << 1)
#define VIRTIO_BLK_F_SEG_MAX      (1ull << 2)
#define VIRTIO_BLK_F_RO           (1ull << 5)
#define VIRTIO_BLK_F_BLK_SIZE     (1ull << 6)
#define VIRTIO_BLK_F_FLUSH        (1ull << 9)
#define VIRTIO_BLK_F_DISCARD      (1ull << 13)
#define VIRTIO_BLK_F_WRITE_ZEROES (1ull << 14)

enum {
    VIRTIO_BLK_T_IN = 0,
    VIRTIO_BLK_T_OUT = 1,
    VIRTIO_BLK_T_FLUSH = 4,
    VIRTIO_BLK_T_GET_ID = 8,
    VIRTIO_BLK_T_DISCARD = 11,
    VIRTIO_BLK_T_WRITE_ZEROES = 13,
};

enum {
    VIRTIO_BLK_S_OK = 0,
    VIRTIO_BLK_S_IOERR = 1,
    VIRTIO_BLK_S_UNSUPP = 2,
};

#define VIRTIO_BLK_ID_BYTES      20
#define VIRTIO_BLK_CONFIG_BYTES  60
#define VIRTIO_BLK_SEGMENTS      126u /* of a request, besides its header and its status */
#define VIRTIO_BLK_SEGMENT_BYTES 65536u
/* More data than the limits above allow is an I/O error. */
#define VIRTIO_BLK_DATA_MAX (VIRTIO_BLK_SEGMENTS * VIRTIO_BLK_SEGMENT_BYTES)
#define VIRTIO_BLK_BOUNCE   65536u

struct virtio_blk {
    struct virtio_device vd;
    struct disk *disk;
    char serial[VIRTIO_BLK_ID_BYTES]; /* padded with zeroes */
    uint8_t config[VIRTIO_BLK_CONFIG_BYTES];
    uint8_t bounce[VIRTIO_BLK_BOUNCE]; /* data passes through here piece by piece */
};

/* `disk` stays the caller's and must outlive the device; serial is cut to 20 bytes. */
void virtio_blk_init(struct virtio_blk *blk, struct dma *dma, struct disk *disk,
                     const char *serial);

#endif
