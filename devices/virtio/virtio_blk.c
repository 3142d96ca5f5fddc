#include "devices/virtio/virtio_blk.h"

#include <assert.h>
#include <string.h>

#include "devices/virtio/virtio_bytes.h"

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

#define STATE_VERSION 2 /* with requests; virtio.c's alone is 1 */

static struct blk_request *request_at(struct virtio_blk *blk, unsigned index)
{
    return &blk->request[(blk->first + index) % VIRTIO_BLK_REQUESTS];
}

static void drop_oldest(struct virtio_blk *blk)
{
    struct blk_request *r = request_at(blk, 0);

    assert(blk->count && atomic_load(&r->job.done));
    blk->held -= r->held;
    blk_request_free(r);
    blk->first = (blk->first + 1) % VIRTIO_BLK_REQUESTS;
    blk->count--;
}

/* ---- the driver's side ---- */

static bool may_take(const struct virtio_blk *blk)
{
    return blk->count < (blk->link->one_by_one ? 1 : VIRTIO_BLK_REQUESTS) &&
           blk->held < VIRTIO_BLK_HELD_MAX;
}

/* The driver's next request, if there is one and it may be taken. */
static bool take_request(struct virtio_blk *blk)
{
    struct blk_request *r = request_at(blk, blk->count);

    if (!may_take(blk) || !virtio_pop(&blk->vd, 0, &r->chain))
        return false;
    r->job = (struct block_job){.run = blk_request_run};
    r->disk = blk->disk;
    r->settles = !(blk->vd.accepted & VIRTIO_BLK_F_FLUSH);
    if (blk_request_take(r, &blk->vd, blk->serial) < 0) {
        blk_request_free(r);
        return false;
    }
    blk->held += r->held;
    blk->count++;
    blk->link->submit(blk->link, &r->job);
    return true;
}

static unsigned count_done(struct virtio_blk *blk)
{
    unsigned done = 0;

    while (done < blk->count && atomic_load(&request_at(blk, done)->job.done))
        done++;
    return done;
}

/* Complete those that the link says, if the device may use memory. Returns whether there were any.
 */
static bool complete_requests(struct virtio_blk *blk)
{
    if (!virtio_may_use_memory(&blk->vd))
        return false;
    const unsigned done = count_done(blk);
    const unsigned count = blk->link->completes(blk->link, done);

    assert(count <= done);
    for (unsigned i = 0; i < count && virtio_is_live(&blk->vd); i++) {
        const struct blk_request *r = request_at(blk, 0);
        uint32_t written;
        if (blk_request_complete(r, &blk->vd, &written) == 0)
            virtio_push(&blk->vd, 0, &r->chain, written);
        drop_oldest(blk);
    }
    return count > 0;
}

/* Take what is in the ring, at most as many as it has elements, and complete what is done. */
static void go_on(struct virtio_blk *blk)
{
    unsigned left = blk->vd.queue[0].size;

    do
        while (left && take_request(blk))
            left--;
    while (complete_requests(blk));
    virtio_publish(&blk->vd, 0);
    virtio_want_bell(&blk->vd, 0);
}

bool virtio_blk_has_done(const struct virtio_blk *blk)
{
    return blk->count && atomic_load(&blk->request[blk->first].job.done) &&
           virtio_may_use_memory(&blk->vd);
}

void virtio_blk_complete(struct virtio_blk *blk)
{
    if (complete_requests(blk))
        go_on(blk);
}

/* ---- the device ---- */

static void notify(struct virtio_device *vd, unsigned queue)
{
    (void)queue;
    go_on((struct virtio_blk *)vd);
}

void virtio_blk_close(struct virtio_blk *blk)
{
    while (blk->count)
        drop_oldest(blk);
}

/* What was taken is done, though the driver does not hear of it. */
static void reset(struct virtio_device *vd)
{
    struct virtio_blk *blk = (struct virtio_blk *)vd;

    if (blk->count)
        blk->link->settle(blk->link);
    virtio_blk_close(blk);
}

static void save(const struct device *device, struct bytes *out)
{
    const struct virtio_blk *blk = (const struct virtio_blk *)device;

    if (!blk->count) {
        virtio_save(device, out);
        return;
    }
    bytes_put_u8(out, STATE_VERSION);
    virtio_save(device, out);
    bytes_put_u8(out, (uint8_t)blk->count);
    for (unsigned i = 0; i < blk->count; i++)
        blk_request_save(&blk->request[(blk->first + i) % VIRTIO_BLK_REQUESTS], out);
}

static int restore_requests(struct virtio_blk *blk, struct cursor *in)
{
    const unsigned count = cursor_u8(in);

    if (count > VIRTIO_BLK_REQUESTS)
        return -1;
    while (blk->count < count) {
        struct blk_request *r = request_at(blk, blk->count);
        if (blk_request_restore(r, in) < 0)
            return -1;
        blk->held += r->held;
        blk->count++;
    }
    return in->bad ? -1 : 0;
}

static int restore(struct device *device, struct cursor *in)
{
    struct virtio_blk *blk = (struct virtio_blk *)device;
    struct cursor first = *in;
    const bool has_requests = cursor_u8(&first) == STATE_VERSION;

    if (has_requests)
        *in = first;
    if (virtio_restore(device, in) < 0)
        return -1;
    if (has_requests && restore_requests(blk, in) < 0) {
        virtio_reset(&blk->vd);
        return -1;
    }
    return 0;
}

static const struct virtio_kind kind = {
    .id = VIRTIO_ID_BLOCK,
    .pci_class = 0x01, /* mass storage, SCSI: what drivers have always seen here */
    .queues = 1,
    .queue_size = 256,
    .notify = notify,
    .reset = reset,
};

static const struct device_ops ops = {
    .name = "virtio-blk",
    .save = save,
    .restore = restore,
};

void virtio_blk_init(struct virtio_blk *blk, struct dma *dma, struct disk *disk,
                     struct block_link *link, const char *serial)
{
    uint64_t features = VIRTIO_BLK_F_SIZE_MAX | VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_BLK_SIZE;

    memset(blk, 0, sizeof *blk);
    blk->disk = disk;
    blk->link = link;
    memcpy(blk->serial, serial, strnlen(serial, sizeof blk->serial));
    put_le(blk->config + CONFIG_CAPACITY, 8, disk->size / DISK_SECTOR);
    put_le(blk->config + CONFIG_SIZE_MAX, 4, VIRTIO_BLK_SEGMENT_BYTES);
    put_le(blk->config + CONFIG_SEG_MAX, 4, VIRTIO_BLK_SEGMENTS);
    put_le(blk->config + CONFIG_BLK_SIZE, 4, DISK_SECTOR);
    if (disk->read_only) {
        features |= VIRTIO_BLK_F_RO;
    } else {
        features |= VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES;
        put_le(blk->config + CONFIG_MAX_DISCARD_SECTORS, 4, BLK_DISCARD_SECTORS);
        put_le(blk->config + CONFIG_MAX_DISCARD_RANGES, 4, BLK_DISCARD_RANGES);
        put_le(blk->config + CONFIG_DISCARD_ALIGNMENT, 4, 4096 / DISK_SECTOR);
        put_le(blk->config + CONFIG_MAX_ZEROES_SECTORS, 4, BLK_ZEROES_SECTORS);
        put_le(blk->config + CONFIG_MAX_ZEROES_RANGES, 4, BLK_ZEROES_RANGES);
    }
    virtio_init(&blk->vd, &ops, &kind, dma, features, blk->config, sizeof blk->config);
}
