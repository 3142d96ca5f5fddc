#include "devices/disk/disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The memory file is as large as the disk and as sparse as what the guest left alone, so a changed
 * cluster lies at its own offset and the map need only say which clusters those are. 4 KiB is what
 * file systems write, so a cluster is seldom written in part, and it is the page of the memory
 * file: nothing is stored that was not written.
 */
#define CLUSTER DISK_CLUSTER

struct overlay {
    struct disk disk;
    struct disk *base;
    int fd;
    uint8_t *changed; /* a bit for each cluster: it lies in fd */
    uint8_t *fresh;   /* and was written since disk_overlay_fresh() said so */
};

static bool is_changed(const struct overlay *o, uint64_t cluster)
{
    return o->changed[cluster / 8] >> (cluster % 8) & 1;
}

static void set_changed(struct overlay *o, uint64_t cluster)
{
    o->changed[cluster / 8] |= (uint8_t)(1 << (cluster % 8));
    o->fresh[cluster / 8] |= (uint8_t)(1 << (cluster % 8));
}

/* How many bytes from offset on, at most len, lie in clusters that are like the first. */
static size_t run_of(const struct overlay *o, uint64_t offset, size_t len, bool *changed)
{
    uint64_t cluster = offset / CLUSTER;
    uint64_t n = CLUSTER - offset % CLUSTER;

    *changed = is_changed(o, cluster);
    while (n < len && is_changed(o, ++cluster) == *changed)
        n += CLUSTER;
    return n < len ? (size_t)n : len;
}

/* now: only what needs no waiting; else it fails. */
static bool read_runs(const struct overlay *o, uint64_t offset, uint8_t *at, size_t len, bool now)
{
    while (len) {
        bool changed, done;
        size_t n = run_of(o, offset, len, &changed);

        if (changed)
            done = disk_file_read(o->fd, offset, at, n) == 0;
        else
            done = now ? disk_read_now(o->base, offset, at, n)
                       : disk_read(o->base, offset, at, n) == 0;
        if (!done)
            return false;
        at += n;
        offset += n;
        len -= n;
    }
    return true;
}

static int overlay_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return read_runs((struct overlay *)disk, offset, data, len, false) ? 0 : -1;
}

static bool overlay_read_now(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return read_runs((struct overlay *)disk, offset, data, len, true);
}

/* Before a part of the cluster is changed: bring the whole of it into the memory file. */
static int copy_up(struct overlay *o, uint64_t cluster)
{
    uint64_t offset = cluster * CLUSTER;
    uint64_t left = o->disk.size - offset;
    size_t len = left < CLUSTER ? (size_t)left : CLUSTER;
    uint8_t data[CLUSTER];

    if (is_changed(o, cluster))
        return 0;
    if (disk_read(o->base, offset, data, len) < 0 || disk_file_write(o->fd, offset, data, len) < 0)
        return -1;
    set_changed(o, cluster);
    return 0;
}

/* Copy up the first and the last cluster of the range where it does not cover them. */
static int copy_up_edges(struct overlay *o, uint64_t offset, uint64_t len)
{
    uint64_t end = offset + len;

    if (offset % CLUSTER && copy_up(o, offset / CLUSTER) < 0)
        return -1;
    if (end % CLUSTER && copy_up(o, end / CLUSTER) < 0)
        return -1;
    return 0;
}

static void set_range_changed(struct overlay *o, uint64_t offset, uint64_t len)
{
    for (uint64_t c = offset / CLUSTER; c <= (offset + len - 1) / CLUSTER; c++)
        set_changed(o, c);
}

static int overlay_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    struct overlay *o = (struct overlay *)disk;

    if (!len)
        return 0;
    if (copy_up_edges(o, offset, len) < 0 || disk_file_write(o->fd, offset, data, len) < 0)
        return -1;
    set_range_changed(o, offset, len);
    return 0;
}

static int overlay_flush(struct disk *disk)
{
    (void)disk; /* it would not survive this process, let alone the host */
    return 0;
}

static int overlay_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    struct overlay *o = (struct overlay *)disk;

    if (copy_up_edges(o, offset, len) < 0)
        return -1;
    if (fallocate(o->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)len) < 0)
        return -1;
    set_range_changed(o, offset, len);
    return 0;
}

/* Memory takes it at once, unless an edge has to be read first. */
static bool overlay_writes_now(struct disk *disk, uint64_t offset, uint64_t len)
{
    const struct overlay *o = (struct overlay *)disk;
    const uint64_t end = offset + len;

    return !len || ((!(offset % CLUSTER) || is_changed(o, offset / CLUSTER)) &&
                    (!(end % CLUSTER) || is_changed(o, end / CLUSTER)));
}

static void overlay_close(struct disk *disk)
{
    struct overlay *o = (struct overlay *)disk;

    disk_close(o->base);
    if (o->fd >= 0)
        close(o->fd);
    free(o->changed);
    free(o->fresh);
    free(o);
}

static const struct disk_ops overlay_ops = {
    .read = overlay_read,
    .write = overlay_write,
    .flush = overlay_flush,
    .zero = overlay_zero,
    .discard = overlay_zero, /* a hole either way, and it hides the base */
    .close = overlay_close,
    .read_now = overlay_read_now,
    .writes_now = overlay_writes_now,
};

bool disk_is_overlay(const struct disk *disk)
{
    return disk->ops == &overlay_ops;
}

/* The next cluster at or after *offset whose bit is set. */
static bool next_set(const struct overlay *o, const uint8_t *bits, uint64_t *offset)
{
    const uint64_t count = (o->disk.size + CLUSTER - 1) / CLUSTER;
    uint64_t cluster = *offset / CLUSTER;

    while (cluster < count && !(bits[cluster / 8] >> (cluster % 8) & 1))
        cluster += bits[cluster / 8] >> (cluster % 8) ? 1 : 8 - cluster % 8;
    *offset = cluster * CLUSTER;
    return cluster < count;
}

bool disk_overlay_changed(const struct disk *disk, uint64_t *offset)
{
    const struct overlay *o = (const struct overlay *)disk;

    return disk_is_overlay(disk) && next_set(o, o->changed, offset);
}

bool disk_overlay_fresh(struct disk *disk, uint64_t *offset)
{
    struct overlay *o = (struct overlay *)disk;

    if (!disk_is_overlay(disk) || !next_set(o, o->fresh, offset))
        return false;
    o->fresh[*offset / CLUSTER / 8] &= (uint8_t) ~(1 << (*offset / CLUSTER % 8));
    return true;
}

struct disk *disk_overlay_new(struct disk *base, struct err *e)
{
    struct overlay *o = calloc(1, sizeof *o);

    if (!o) {
        err_set(e, STATUS_ERROR, "out of memory");
        disk_close(base);
        return NULL;
    }
    assert(base->size % DISK_SECTOR == 0);
    o->base = base;
    o->disk = (struct disk){.ops = &overlay_ops, .size = base->size, .hidden = base->hidden};
    o->fd = memfd_create("disk-overlay", MFD_CLOEXEC);
    o->changed = calloc(base->size / CLUSTER / 8 + 1, 1);
    o->fresh = calloc(base->size / CLUSTER / 8 + 1, 1);
    if (o->fd < 0 || !o->changed || !o->fresh || ftruncate(o->fd, (off_t)base->size) < 0) {
        err_set(e, STATUS_ERROR, "cannot make a copy-on-write disk of %llu bytes in memory: %s",
                (unsigned long long)base->size,
                o->changed && o->fresh ? strerror(errno) : "out of memory");
        overlay_close(&o->disk);
        return NULL;
    }
    return &o->disk;
}
