#ifndef DEVICES_VIRTIO_BLK_REQUEST_H
#define DEVICES_VIRTIO_BLK_REQUEST_H

#include "base/bytes.h"
#include "devices/disk/disk.h"
#include "devices/virtio/block_link.h"
#include "devices/virtio/virtio.h"

/*
 * A request of a block device's driver (Virtio 1.2, section 5.2.6): taken from its chain with what
 * it writes, run on the disk, and completed with what it has read and its status.
 */
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

#define BLK_ID_BYTES             20
#define VIRTIO_BLK_SEGMENTS      126u /* of a request, besides its header and its status */
#define VIRTIO_BLK_SEGMENT_BYTES 65536u
/* More data than the limits above allow is an I/O error. */
#define VIRTIO_BLK_DATA_MAX (VIRTIO_BLK_SEGMENTS * VIRTIO_BLK_SEGMENT_BYTES)

/* So much is moved at a time: recordings hold transfers in such pieces. */
#define BLK_PIECE 65536u

/* How many ranges, and sectors in each: so few that no request keeps the machine for long, even on
 * a host file system that can only be written zeroes to. */
#define BLK_DISCARD_RANGES  16u
#define BLK_DISCARD_SECTORS (1u << 21)
#define BLK_ZEROES_RANGES   1u
#define BLK_ZEROES_SECTORS  (1u << 17)

struct blk_request {
    struct block_job job; /* its first member */
    struct disk *disk;
    bool settles; /* what it changes is to be stable when it is completed */
    uint32_t type;
    uint64_t sector;
    uint64_t out_len, in_len; /* bytes for the device and for the driver, header and status not */
    uint8_t *data;            /* `held` bytes: what it writes, or room for what it reads */
    uint32_t held;
    uint32_t in_done; /* bytes of data for the driver */
    uint8_t status;
    struct virtio_chain chain;
};

/* What its chain says, which is filled in, as disk, settles and the rest of *r are not. id: what
 * GET_ID answers. -1 after virtio_break(). */
int blk_request_take(struct blk_request *r, struct virtio_device *vd, const char id[BLK_ID_BYTES]);
/* Its job: what there is to do on the disk. */
bool blk_request_run(struct block_job *job, bool may_wait);
/* Answer it, when its job is done: *written bytes are written from the buffer's start on. -1 after
 * virtio_break(). */
int blk_request_complete(const struct blk_request *r, struct virtio_device *vd, uint32_t *written);
void blk_request_free(struct blk_request *r);

/* Of one whose job is done: what its completion needs. */
void blk_request_save(const struct blk_request *r, struct bytes *out);
/* -1: that is none. */
int blk_request_restore(struct blk_request *r, struct cursor *in);

#endif
