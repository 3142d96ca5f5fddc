#include "devices/virtio/virtio_blk.h"

#include <string.h>

#include "devices/virtio/virtio_bytes.h"

/* The request, section 5.2.6: header, data, and one status byte at the very end. */
#define HEADER_BYTES 16
#define STATUS_BYTES 1
#define RANGE_BYTES  16 /* of DISCARD and WRITE_ZEROES data */
#define RANGE_UNMAP  1u
/* How many ranges, and sectors in each: so few that no request keeps the machine for long, even on
 * a host file system that can only be written zeroes to. */
#define DISCARD_RANGES  16u
#define DISCARD_SECTORS (1u << 21)
#define ZEROES_RANGES   1u
#define ZEROES_SECTORS  (1u << 17)

/* The configuration space, section 5.2.4: offsets. */
#define CONFIG_CAPACITY            0
#define CONFIG_SIZE_MAX            8
#define CONFIG_SEG_MAX             12
#define CONFIG_BLK_SIZE            20
#define CONFIG_MAX_DISCARD_SECTORS 36
#define CONFIG_MAX_DISCARD_RANGES  40
#define CONFIG_DISCARD_ALIGNMENT   44
#define CONFIG_MAX_ZEROES_SECTORS  48
#define CONFIG_MAX_ZEROES_RANGES   52

struct request {
    const struct virtio_chain *chain;
    uint32_t type;
    uint64_t sector;
    uint64_t out_len, in_len; /* bytes of data, without header and status */
    uint32_t in_done;         /* bytes of data written to the driver */
};

/* The serve functions return a status for the driver, or -1 when the device broke. */

static bool data_fits(const struct virtio_blk *blk, uint64_t sector, uint64_t len)
{
    return len % DISK_SECTOR == 0 && len <= VIRTIO_BLK_DATA_MAX &&
           sector <= blk->disk->size / DISK_SECTOR && len <= blk->disk->size - sector * DISK_SECTOR;
}

static size_t piece(uint64_t left)
{
    return left < VIRTIO_BLK_BOUNCE ? (size_t)left : VIRTIO_BLK_BOUNCE;
}

static int serve_in(struct virtio_blk *blk, struct request *r)
{
    if (!data_fits(blk, r->sector, r->in_len))
        return VIRTIO_BLK_S_IOERR;
    while (r->in_done < r->in_len) {
        size_t n = piece(r->in_len - r->in_done);

        if (disk_read(blk->disk, r->sector * DISK_SECTOR + r->in_done, blk->bounce, n) < 0)
            return VIRTIO_BLK_S_IOERR;
        if (virtio_write(&blk->vd, r->chain, r->in_done, blk->bounce, n) < 0)
            return -1;
        r->in_done += (uint32_t)n;
    }
    return VIRTIO_BLK_S_OK;
}

/* Section 5.2.6.2: for a driver that does not know FLUSH, writes are stable when they return. */
static int settle(struct virtio_blk *blk)
{
    if (!(blk->vd.accepted & VIRTIO_BLK_F_FLUSH) && disk_flush(blk->disk) < 0)
        return VIRTIO_BLK_S_IOERR;
    return VIRTIO_BLK_S_OK;
}

static int serve_out(struct virtio_blk *blk, struct request *r)
{
    uint64_t done = 0;

    if (blk->disk->read_only || !data_fits(blk, r->sector, r->out_len))
        return VIRTIO_BLK_S_IOERR;
    while (done < r->out_len) {
        size_t n = piece(r->out_len - done);

        if (virtio_read(&blk->vd, r->chain, HEADER_BYTES + done, blk->bounce, n) < 0)
            return -1;
        if (disk_write(blk->disk, r->sector * DISK_SECTOR + done, blk->bounce, n) < 0)
            return VIRTIO_BLK_S_IOERR;
        done += n;
    }
    return settle(blk);
}

static int serve_range(struct virtio_blk *blk, bool discard, uint64_t sector, uint64_t count)
{
    uint64_t sectors = blk->disk->size / DISK_SECTOR;

    if (count > (discard ? DISCARD_SECTORS : ZEROES_SECTORS) || sector > sectors ||
        count > sectors - sector)
        return -1;
    return (discard ? disk_discard : disk_zero)(blk->disk, sector * DISK_SECTOR,
                                                count * DISK_SECTOR);
}

static int serve_ranges(struct virtio_blk *blk, struct request *r)
{
    uint8_t raw[DISCARD_RANGES * RANGE_BYTES];
    bool discard = r->type == VIRTIO_BLK_T_DISCARD;
    uint64_t most = (uint64_t)(discard ? DISCARD_RANGES : ZEROES_RANGES) * RANGE_BYTES;

    if (!r->out_len || r->out_len % RANGE_BYTES || r->out_len > most)
        return VIRTIO_BLK_S_IOERR;
    if (virtio_read(&blk->vd, r->chain, HEADER_BYTES, raw, (size_t)r->out_len) < 0)
        return -1;
    /* Section 5.2.6.2: a DISCARD has no flags, WRITE_ZEROES may say "unmap". */
    for (unsigned at = 0; at < r->out_len; at += RANGE_BYTES)
        if (get_le(raw + at + 12, 4) & ~(uint64_t)(discard ? 0 : RANGE_UNMAP))
            return VIRTIO_BLK_S_UNSUPP;
    for (unsigned at = 0; at < r->out_len; at += RANGE_BYTES)
        if (serve_range(blk, discard, get_le(raw + at, 8), get_le(raw + at + 8, 4)) < 0)
            return VIRTIO_BLK_S_IOERR;
    return settle(blk);
}

static int serve_id(struct virtio_blk *blk, struct request *r)
{
    size_t n = r->in_len < sizeof blk->serial ? (size_t)r->in_len : sizeof blk->serial;

    if (virtio_write(&blk->vd, r->chain, 0, blk->serial, n) < 0)
        return -1;
    r->in_done = (uint32_t)n;
    return VIRTIO_BLK_S_OK;
}

static int serve_request(struct virtio_blk *blk, struct request *r)
{
    bool changeable = !blk->disk->read_only;

    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        return serve_in(blk, r);
    case VIRTIO_BLK_T_OUT:
        return serve_out(blk, r);
    case VIRTIO_BLK_T_FLUSH:
        return disk_flush(blk->disk) < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK;
    case VIRTIO_BLK_T_GET_ID:
        return serve_id(blk, r);
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return changeable ? serve_ranges(blk, r) : VIRTIO_BLK_S_UNSUPP;
    default:
        return VIRTIO_BLK_S_UNSUPP;
    }
}

static int serve(struct virtio_device *vd, const struct virtio_chain *chain, uint32_t *written)
{
    struct virtio_blk *blk = (struct virtio_blk *)vd;
    uint8_t header[HEADER_BYTES];
    struct request r = {.chain = chain};
    uint8_t status_byte;
    int status;

    if (chain->out_len < HEADER_BYTES || chain->in_len < STATUS_BYTES)
        return virtio_break(vd, "block request without header or status");
    if (virtio_read(vd, chain, 0, header, sizeof header) < 0)
        return -1;
    r.type = (uint32_t)get_le(header, 4);
    r.sector = get_le(header + 8, 8);
    r.out_len = chain->out_len - HEADER_BYTES;
    r.in_len = chain->in_len - STATUS_BYTES;
    status = serve_request(blk, &r);
    if (status < 0)
        return -1;
    status_byte = (uint8_t)status;
    if (virtio_write(vd, chain, r.in_len, &status_byte, STATUS_BYTES) < 0)
        return -1;
    /* `written` counts from the buffer's start, so the status only when there is no gap before. */
    *written = r.in_done == r.in_len ? r.in_done + STATUS_BYTES : r.in_done;
    return 0;
}

static void notify(struct virtio_device *vd, unsigned queue)
{
    virtio_serve(vd, queue, serve);
}

static const struct virtio_kind kind = {
    .id = VIRTIO_ID_BLOCK,
    .pci_class = 0x01, /* mass storage, SCSI: what drivers have always seen here */
    .queues = 1,
    .queue_size = 256,
    .notify = notify,
};

static const struct device_ops ops = {
    .name = "virtio-blk",
    .save = virtio_save,
    .restore = virtio_restore,
};

void virtio_blk_init(struct virtio_blk *blk, struct dma *dma, struct disk *disk, const char *serial)
{
    uint64_t features = VIRTIO_BLK_F_SIZE_MAX | VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_BLK_SIZE;

    memset(blk, 0, sizeof *blk);
    blk->disk = disk;
    memcpy(blk->serial, serial, strnlen(serial, sizeof blk->serial));
    put_le(blk->config + CONFIG_CAPACITY, 8, disk->size / DISK_SECTOR);
    put_le(blk->config + CONFIG_SIZE_MAX, 4, VIRTIO_BLK_SEGMENT_BYTES);
    put_le(blk->config + CONFIG_SEG_MAX, 4, VIRTIO_BLK_SEGMENTS);
    put_le(blk->config + CONFIG_BLK_SIZE, 4, DISK_SECTOR);
    if (disk->read_only) {
        features |= VIRTIO_BLK_F_RO;
    } else {
        features |= VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES;
        put_le(blk->config + CONFIG_MAX_DISCARD_SECTORS, 4, DISCARD_SECTORS);
        put_le(blk->config + CONFIG_MAX_DISCARD_RANGES, 4, DISCARD_RANGES);
        put_le(blk->config + CONFIG_DISCARD_ALIGNMENT, 4, 4096 / DISK_SECTOR);
        put_le(blk->config + CONFIG_MAX_ZEROES_SECTORS, 4, ZEROES_SECTORS);
        put_le(blk->config + CONFIG_MAX_ZEROES_RANGES, 4, ZEROES_RANGES);
    }
    virtio_init(&blk->vd, &ops, &kind, dma, features, blk->config, sizeof blk->config);
}
