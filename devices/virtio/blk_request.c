#include "devices/virtio/blk_request.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio/virtio_bytes.h"

/* The request, section 5.2.6: header, data, and one status byte at the very end. */
#define HEADER_BYTES 16
#define STATUS_BYTES 1
#define RANGE_BYTES  16 /* of DISCARD and WRITE_ZEROES data */
#define RANGE_UNMAP  1u

static uint32_t piece(uint64_t left)
{
    return left < BLK_PIECE ? (uint32_t)left : BLK_PIECE;
}

/* ---- taking it ---- */

static bool data_fits(const struct blk_request *r, uint64_t len)
{
    const uint64_t sectors = r->disk->size / DISK_SECTOR;

    return len % DISK_SECTOR == 0 && len <= VIRTIO_BLK_DATA_MAX && r->sector <= sectors &&
           len / DISK_SECTOR <= sectors - r->sector;
}

static bool ranges_fit(const struct blk_request *r)
{
    const unsigned most = r->type == VIRTIO_BLK_T_DISCARD ? BLK_DISCARD_RANGES : BLK_ZEROES_RANGES;

    return r->out_len && r->out_len % RANGE_BYTES == 0 && r->out_len <= most * RANGE_BYTES;
}

/* How a request ends that is not run at all; OK for one that is. */
static uint8_t refuse(const struct blk_request *r)
{
    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        return data_fits(r, r->in_len) ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
    case VIRTIO_BLK_T_OUT:
        return !r->disk->read_only && data_fits(r, r->out_len) ? VIRTIO_BLK_S_OK
                                                               : VIRTIO_BLK_S_IOERR;
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        if (r->disk->read_only)
            return VIRTIO_BLK_S_UNSUPP;
        return ranges_fit(r) ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
    case VIRTIO_BLK_T_FLUSH:
    case VIRTIO_BLK_T_GET_ID:
        return VIRTIO_BLK_S_OK;
    default:
        return VIRTIO_BLK_S_UNSUPP;
    }
}

/* Bytes of data that it holds. */
static uint32_t data_of(const struct blk_request *r)
{
    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        return (uint32_t)r->in_len;
    case VIRTIO_BLK_T_GET_ID:
        return r->in_len < BLK_ID_BYTES ? (uint32_t)r->in_len : BLK_ID_BYTES;
    case VIRTIO_BLK_T_FLUSH:
        return 0;
    default:
        return (uint32_t)r->out_len;
    }
}

static int take_data(struct blk_request *r, struct virtio_device *vd)
{
    for (uint32_t at = 0; at < r->held; at += BLK_PIECE)
        if (virtio_read(vd, &r->chain, HEADER_BYTES + at, r->data + at, piece(r->held - at)) < 0)
            return -1;
    return 0;
}

int blk_request_take(struct blk_request *r, struct virtio_device *vd, const char id[BLK_ID_BYTES])
{
    uint8_t header[HEADER_BYTES];

    r->data = NULL;
    r->held = r->in_done = 0;
    if (r->chain.out_len < HEADER_BYTES || r->chain.in_len < STATUS_BYTES)
        return virtio_break(vd, "block request without header or status");
    if (virtio_read(vd, &r->chain, 0, header, sizeof header) < 0)
        return -1;
    r->type = (uint32_t)get_le(header, 4);
    r->sector = get_le(header + 8, 8);
    r->out_len = r->chain.out_len - HEADER_BYTES;
    r->in_len = r->chain.in_len - STATUS_BYTES;
    r->status = refuse(r);
    if (r->status != VIRTIO_BLK_S_OK)
        return 0;
    const uint32_t held = data_of(r);
    r->data = malloc(held ? held : 1);
    if (!r->data) {
        r->status = VIRTIO_BLK_S_IOERR;
        return 0;
    }
    r->held = held;
    if (r->type == VIRTIO_BLK_T_GET_ID) {
        memcpy(r->data, id, held);
        r->in_done = held;
        return 0;
    }
    return r->type == VIRTIO_BLK_T_IN ? 0 : take_data(r, vd);
}

void blk_request_free(struct blk_request *r)
{
    free(r->data);
    r->data = NULL;
    r->held = 0;
}

/* ---- running it ---- */

static uint8_t read_all(struct blk_request *r)
{
    while (r->in_done < r->held) {
        const uint32_t n = piece(r->held - r->in_done);
        const uint64_t at = r->sector * DISK_SECTOR + r->in_done;
        if (disk_read(r->disk, at, r->data + r->in_done, n) < 0)
            return VIRTIO_BLK_S_IOERR;
        r->in_done += n;
    }
    return VIRTIO_BLK_S_OK;
}

/* Section 5.2.6.2: for a driver that does not know FLUSH, writes are stable when they return. */
static uint8_t settle(const struct blk_request *r)
{
    return r->settles && disk_flush(r->disk) < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK;
}

static uint8_t write_all(const struct blk_request *r)
{
    return disk_write(r->disk, r->sector * DISK_SECTOR, r->data, r->held) < 0 ? VIRTIO_BLK_S_IOERR
                                                                              : settle(r);
}

static int change_range(const struct blk_request *r, uint64_t sector, uint64_t count)
{
    const bool discard = r->type == VIRTIO_BLK_T_DISCARD;
    const uint64_t sectors = r->disk->size / DISK_SECTOR;

    if (count > (discard ? BLK_DISCARD_SECTORS : BLK_ZEROES_SECTORS) || sector > sectors ||
        count > sectors - sector)
        return -1;
    return (discard ? disk_discard : disk_zero)(r->disk, sector * DISK_SECTOR, count * DISK_SECTOR);
}

static uint8_t change_ranges(const struct blk_request *r)
{
    const bool discard = r->type == VIRTIO_BLK_T_DISCARD;

    /* Section 5.2.6.2: a DISCARD has no flags, WRITE_ZEROES may say "unmap". */
    for (unsigned at = 0; at < r->held; at += RANGE_BYTES)
        if (get_le(r->data + at + 12, 4) & ~(uint64_t)(discard ? 0 : RANGE_UNMAP))
            return VIRTIO_BLK_S_UNSUPP;
    for (unsigned at = 0; at < r->held; at += RANGE_BYTES)
        if (change_range(r, get_le(r->data + at, 8), get_le(r->data + at + 8, 4)) < 0)
            return VIRTIO_BLK_S_IOERR;
    return settle(r);
}

static uint8_t run_waiting(struct blk_request *r)
{
    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        return read_all(r);
    case VIRTIO_BLK_T_OUT:
        return write_all(r);
    case VIRTIO_BLK_T_FLUSH:
        return disk_flush(r->disk) < 0 ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK;
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return change_ranges(r);
    default:
        return VIRTIO_BLK_S_OK;
    }
}

/* Whether it can be done, or in the case of a read has been, without waiting. */
static bool runs_now(struct blk_request *r)
{
    const uint64_t at = r->sector * DISK_SECTOR;

    switch (r->type) {
    case VIRTIO_BLK_T_IN:
        if (!disk_read_now(r->disk, at, r->data, r->held))
            return false;
        r->in_done = r->held;
        return true;
    case VIRTIO_BLK_T_OUT:
        return disk_writes_now(r->disk, at, r->held) &&
               (!r->settles || disk_writes_now(r->disk, 0, 0));
    case VIRTIO_BLK_T_FLUSH:
        return disk_writes_now(r->disk, 0, 0);
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES:
        return false;
    default:
        return true;
    }
}

bool blk_request_run(struct block_job *job, bool may_wait)
{
    struct blk_request *r = (struct blk_request *)job;

    if (r->status != VIRTIO_BLK_S_OK)
        return true;
    if (!may_wait && !runs_now(r))
        return false;
    r->status = run_waiting(r);
    return true;
}

/* ---- completing it ---- */

int blk_request_complete(const struct blk_request *r, struct virtio_device *vd, uint32_t *written)
{
    for (uint32_t at = 0; at < r->in_done; at += BLK_PIECE)
        if (virtio_write(vd, &r->chain, at, r->data + at, piece(r->in_done - at)) < 0)
            return -1;
    if (virtio_write(vd, &r->chain, r->in_len, &r->status, STATUS_BYTES) < 0)
        return -1;
    /* `written` counts from the buffer's start, so the status only when there is no gap before. */
    *written = r->in_done == r->in_len ? r->in_done + STATUS_BYTES : r->in_done;
    return 0;
}

void blk_request_save(const struct blk_request *r, struct bytes *out)
{
    const struct virtio_chain *chain = &r->chain;

    assert(atomic_load(&r->job.done));
    bytes_put_u16(out, chain->head);
    bytes_put_u8(out, r->status);
    bytes_put_varint(out, chain->in_count);
    for (unsigned i = 0; i < chain->in_count; i++) {
        bytes_put_u64(out, chain->segment[chain->out_count + i].gpa);
        bytes_put_u32(out, chain->segment[chain->out_count + i].len);
    }
    bytes_put_varint(out, r->held);
    bytes_put_varint(out, r->in_done);
    bytes_put(out, r->data, r->in_done);
}

/* The segments that the driver is answered in; false: they are none. */
static bool restore_segments(struct virtio_chain *chain, struct cursor *in)
{
    const uint64_t count = cursor_varint(in);

    chain->out_count = chain->in_count = 0;
    chain->out_len = chain->in_len = 0;
    if (count > VIRTIO_CHAIN_MAX)
        return false;
    for (unsigned i = 0; i < count; i++) {
        struct virtio_segment *segment = &chain->segment[i];
        *segment = (struct virtio_segment){.gpa = cursor_u64(in)};
        segment->len = cursor_u32(in);
        if (segment->gpa > UINT64_MAX - segment->len)
            return false;
        chain->in_len += segment->len;
    }
    chain->in_count = (unsigned)count;
    return !in->bad && chain->in_len >= STATUS_BYTES;
}

int blk_request_restore(struct blk_request *r, struct cursor *in)
{
    r->data = NULL;
    r->held = 0;
    r->chain.head = cursor_u16(in);
    r->status = cursor_u8(in);
    if (!restore_segments(&r->chain, in))
        return -1;
    r->in_len = r->chain.in_len - STATUS_BYTES;
    const uint64_t held = cursor_varint(in), done = cursor_varint(in);
    if (in->bad || held > VIRTIO_BLK_DATA_MAX || done > held || done > r->in_len ||
        done > cursor_left(in))
        return -1;
    r->data = malloc(done ? (size_t)done : 1);
    if (!r->data)
        return -1;
    r->held = (uint32_t)held; /* of what it writes there is nothing any more, but it counts */
    r->in_done = (uint32_t)done;
    cursor_get(in, r->data, (size_t)done);
    atomic_store(&r->job.done, true);
    return in->bad ? -1 : 0;
}
