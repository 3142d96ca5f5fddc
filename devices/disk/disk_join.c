#include "devices/disk/disk_join.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct join {
    struct disk disk;
    struct disk *part[MAX_DISKS];
    uint64_t begin[MAX_DISKS + 1]; /* the last one is the end */
    unsigned count;
};

/* What is done to each piece of a range that lies in one part. */
typedef int piece_fn(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len);

static uint64_t whole_clusters(uint64_t size)
{
    return (size + DISK_CLUSTER - 1) / DISK_CLUSTER * DISK_CLUSTER;
}

/* data: what the pieces are read to or written from; NULL: nothing. Behind a part's end there are
 * zeroes, and what is written there is lost. */
static int each_piece(struct disk *disk, uint64_t offset, uint8_t *data, uint64_t len, piece_fn *fn,
                      bool reads)
{
    struct join *j = (struct join *)disk;
    unsigned i = j->count - 1;

    while (j->begin[i] > offset)
        i--;
    while (len) {
        const uint64_t at = offset - j->begin[i], size = j->part[i]->size;
        const bool inside = at < size;
        const uint64_t end = inside ? size : j->begin[i + 1] - j->begin[i];
        const uint64_t n = end - at < len ? end - at : len;
        if (inside && fn(j->part[i], at, data, n) < 0)
            return -1;
        if (!inside && reads)
            memset(data, 0, n);
        offset += n;
        data = data ? data + n : NULL;
        len -= n;
        if (i + 1 < j->count && offset == j->begin[i + 1])
            i++;
    }
    return 0;
}

static int read_piece(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len)
{
    return disk_read(part, offset, data, (size_t)len);
}

static int read_piece_now(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len)
{
    return disk_read_now(part, offset, data, (size_t)len) ? 0 : -1;
}

static int write_piece(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len)
{
    return disk_write(part, offset, data, (size_t)len);
}

static int zero_piece(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len)
{
    (void)data;
    return disk_zero(part, offset, len);
}

static int discard_piece(struct disk *part, uint64_t offset, uint8_t *data, uint64_t len)
{
    (void)data;
    return disk_discard(part, offset, len);
}

static int join_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return each_piece(disk, offset, data, len, read_piece, true);
}

static bool join_read_now(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return each_piece(disk, offset, data, len, read_piece_now, true) == 0;
}

static int join_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    return each_piece(disk, offset, (uint8_t *)(uintptr_t)data, len, write_piece, false);
}

static int join_flush(struct disk *disk)
{
    struct join *j = (struct join *)disk;
    int rc = 0;

    for (unsigned i = 0; i < j->count; i++)
        if (disk_flush(j->part[i]) < 0)
            rc = -1;
    return rc;
}

static int join_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    return each_piece(disk, offset, NULL, len, zero_piece, false);
}

static int join_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    return each_piece(disk, offset, NULL, len, discard_piece, false);
}

static void join_close(struct disk *disk)
{
    struct join *j = (struct join *)disk;

    for (unsigned i = 0; i < j->count; i++)
        disk_close(j->part[i]);
    free(j);
}

static const struct disk_ops join_ops = {
    .read = join_read,
    .write = join_write,
    .flush = join_flush,
    .zero = join_zero,
    .discard = join_discard,
    .close = join_close,
    .read_now = join_read_now,
};

uint64_t disk_join_offset(const uint64_t *sizes, unsigned index)
{
    uint64_t offset = 0;

    for (unsigned i = 0; i < index; i++)
        offset += whole_clusters(sizes[i]);
    return offset;
}

struct disk *disk_join(struct disk *const *disks, const uint64_t *sizes, unsigned count)
{
    assert(count >= 1 && count <= MAX_DISKS);
    if (count == 1 && sizes[0] == disks[0]->size)
        return disks[0];
    struct join *j = calloc(1, sizeof *j);
    if (!j) {
        for (unsigned i = 0; i < count; i++)
            disk_close(disks[i]);
        return NULL;
    }
    j->disk = (struct disk){.ops = &join_ops, .read_only = true};
    j->count = count;
    for (unsigned i = 0; i < count; i++) {
        j->part[i] = disks[i];
        j->begin[i] = j->disk.size;
        assert(sizes[i] >= disks[i]->size);
        j->disk.size += whole_clusters(sizes[i]);
        j->disk.read_only &= disks[i]->read_only;
    }
    j->begin[count] = j->disk.size;
    return &j->disk;
}

/* ---- pieces ---- */

struct slice {
    struct disk disk;
    struct disk *whole;
    uint64_t offset;
};

static int slice_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_read(s->whole, s->offset + offset, data, len);
}

static bool slice_read_now(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_read_now(s->whole, s->offset + offset, data, len);
}

static bool slice_writes_now(struct disk *disk, uint64_t offset, uint64_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_writes_now(s->whole, s->offset + offset, len);
}

static int slice_write(struct disk *disk, uint64_t offset, const void *data, size_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_write(s->whole, s->offset + offset, data, len);
}

static int slice_flush(struct disk *disk)
{
    return disk_flush(((struct slice *)disk)->whole);
}

static int slice_zero(struct disk *disk, uint64_t offset, uint64_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_zero(s->whole, s->offset + offset, len);
}

static int slice_discard(struct disk *disk, uint64_t offset, uint64_t len)
{
    const struct slice *s = (struct slice *)disk;

    return disk_discard(s->whole, s->offset + offset, len);
}

static void slice_close(struct disk *disk)
{
    free(disk);
}

static const struct disk_ops slice_ops = {
    .read = slice_read,
    .write = slice_write,
    .flush = slice_flush,
    .zero = slice_zero,
    .discard = slice_discard,
    .close = slice_close,
    .read_now = slice_read_now,
    .writes_now = slice_writes_now,
};

struct disk *disk_slice(struct disk *whole, uint64_t offset, uint64_t size, bool read_only)
{
    struct slice *s = calloc(1, sizeof *s);

    assert(offset <= whole->size && size <= whole->size - offset);
    if (!s)
        return NULL;
    s->disk =
        (struct disk){.ops = &slice_ops, .size = size, .read_only = read_only || whole->read_only};
    s->whole = whole;
    s->offset = offset;
    return &s->disk;
}
