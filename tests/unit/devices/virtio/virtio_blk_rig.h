#ifndef TESTS_UNIT_DEVICES_VIRTIO_VIRTIO_BLK_RIG_H
#define TESTS_UNIT_DEVICES_VIRTIO_VIRTIO_BLK_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "devices/virtio/virtio_blk.h"
#include "tests/unit/devices/virtio/virtio_rings.h"

/*
 * A block device for the unit tests, over a disk in an array, with requests in the usual layout:
 * descriptors 0 to 2 for header, data and status.
 */
#define SIZE       16
#define DISK_BYTES (1u << 18)
#define FEATURES   (VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT_DESC)

#define HEADER RING_DATA
#define STATUS (RING_DATA + 0x100)
#define DATA   (RING_DATA + 0x1000)

/* A disk in an array that can be told to fail. */
struct array_disk {
    struct disk disk;
    uint8_t bytes[DISK_BYTES];
    unsigned flushes;
    unsigned good; /* operations until all fail */
};

static struct ram ram;
static struct array_disk array;
static struct virtio_blk blk;
static bool wire;

static inline bool fails(void)
{
    return array.good == 0 || array.good-- == 0;
}

static inline int array_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    (void)disk;
    if (fails())
        return -1;
    memcpy(data, array.bytes + offset, len);
    return 0;
}

static inline int array_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    (void)disk;
    if (fails())
        return -1;
    memcpy(array.bytes + offset, data, len);
    return 0;
}

static inline int array_flush(struct disk *disk)
{
    (void)disk;
    array.flushes++;
    return fails() ? -1 : 0;
}

static inline int array_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    (void)disk;
    memset(array.bytes + offset, 0, len);
    return fails() ? -1 : 0;
}

static inline int array_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    (void)disk;
    memset(array.bytes + offset, 0xdd, len);
    return fails() ? -1 : 0;
}

static const struct disk_ops array_ops = {.read = array_read,
                                          .write = array_write,
                                          .flush = array_flush,
                                          .zero = array_zero,
                                          .discard = array_discard};

/* Who does the work: at once, or what is submitted waits, as where a thread does it. */
static struct lane {
    struct block_link link;
    bool waits;
    struct block_job *oldest; /* of those that wait */
    unsigned settled;
} lane;

static inline void lane_submit(struct block_link *link, struct block_job *job)
{
    (void)link;
    if (!lane.waits) {
        assert_true(job->run(job, true));
        atomic_store(&job->done, true);
        return;
    }
    struct block_job **last = &lane.oldest;
    while (*last)
        last = &(*last)->next;
    *last = job;
    job->next = NULL;
}

/* One that waits is done; false: none does. */
static inline bool work(void)
{
    struct block_job *job = lane.oldest;

    if (!job)
        return false;
    lane.oldest = job->next;
    assert_true(job->run(job, true));
    atomic_store(&job->done, true);
    return true;
}

static inline unsigned lane_completes(struct block_link *link, unsigned done)
{
    (void)link;
    return done;
}

static inline void lane_settle(struct block_link *link)
{
    (void)link;
    lane.settled++;
    while (work())
        continue;
}

static inline void set_wire(void *transport, bool level)
{
    *(bool *)transport = level;
}

static inline void make(bool read_only)
{
    array.disk = (struct disk){.ops = &array_ops, .size = DISK_BYTES, .read_only = read_only};
    array.flushes = 0;
    array.good = UINT32_MAX;
    for (size_t i = 0; i < DISK_BYTES; i++)
        array.bytes[i] = (uint8_t)(i / 512 + i);
    lane = (struct lane){
        .link = {.submit = lane_submit, .completes = lane_completes, .settle = lane_settle}};
    virtio_blk_init(&blk, &ram.dma, &array.disk, &lane.link, "ditto");
    blk.vd.interrupt = set_wire;
    blk.vd.transport = &wire;
    drive(&blk.vd, blk.vd.offered, SIZE);
}

static inline int setup(void **state)
{
    (void)state;
    ram_init(&ram);
    wire = false;
    make(false);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    lane_settle(NULL);
    virtio_blk_close(&blk);
    ram_free(&ram);
    return 0;
}

static inline void put_header(uint32_t type, uint64_t sector)
{
    put(&ram, HEADER, 4, type);
    put(&ram, HEADER + 4, 4, 0);
    put(&ram, HEADER + 8, 8, sector);
    put(&ram, STATUS, 1, 0xaa);
}

/* Ring the bell for chain 0, expect it back; its status. */
static inline unsigned submit(void)
{
    uint16_t before = used_index(&ram);

    put_avail(&ram, SIZE, 0);
    virtio_notify(&blk.vd, 0);
    assert_int_equal((uint16_t)(used_index(&ram) - before), 1);
    return (unsigned)get(&ram, STATUS, 1);
}

/* A request in the usual layout: header, data, status. */
static inline unsigned request(uint32_t type, uint64_t sector, uint32_t len, bool to_driver)
{
    put_header(type, sector);
    put_desc(&ram, RING_DESC, 0, HEADER, 16, D_NEXT, len ? 1 : 2);
    put_desc(&ram, RING_DESC, 1, DATA, len, D_NEXT | (to_driver ? D_WRITE : 0), 2);
    put_desc(&ram, RING_DESC, 2, STATUS, 1, D_WRITE, 0);
    return submit();
}

static inline uint32_t last_written(void)
{
    return used_len(&ram, (used_index(&ram) - 1u) % SIZE);
}

#endif
