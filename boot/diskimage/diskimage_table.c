#include "boot/diskimage/diskimage_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"

#define SECTOR           512u
#define MBR_ENTRIES_AT   446u
#define MBR_ENTRIES      4u
#define MBR_SIGNATURE_AT 510u
#define MBR_PROTECTIVE   0xee
#define FIRST_LOGICAL    5u
#define LOGICAL_MAX      100u /* links of the chain of extended boot records */
#define GPT_HEADER_LEN   92u
#define GPT_ENTRY_MIN    128u
#define GPT_ENTRY_MAX    4096u
#define GPT_ENTRIES_MAX  1024u

struct table {
    struct disk *disk;
    uint64_t sectors;
    struct disk_partition *out;
    size_t count, max;
};

struct mbr_entry {
    uint8_t type;
    uint64_t start, length; /* in sectors */
};

static bool read_at(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    return disk_read(disk, offset, data, len) == 0;
}

static void add(struct table *t, unsigned number, uint64_t start, uint64_t length)
{
    if (length == 0 || start >= t->sectors || length > t->sectors - start || t->count >= t->max)
        return;
    for (size_t i = 0; i < t->count; i++) /* Linux has both, but the same is in them */
        if (t->out[i].offset == start * SECTOR)
            return;

    struct disk_partition *p = &t->out[t->count++];

    snprintf(p->device, sizeof(p->device), "vda%u", number);
    p->offset = start * SECTOR;
    p->size = length * SECTOR;
}

static bool read_boot_record(const struct table *t, uint64_t sector,
                             struct mbr_entry entries[MBR_ENTRIES])
{
    uint8_t record[SECTOR];

    if (sector >= t->sectors || !read_at(t->disk, sector * SECTOR, record, sizeof(record)) ||
        record[MBR_SIGNATURE_AT] != 0x55 || record[MBR_SIGNATURE_AT + 1] != 0xaa)
        return false;
    for (unsigned i = 0; i < MBR_ENTRIES; i++) {
        struct cursor c = cursor_of(record + MBR_ENTRIES_AT + i * 16, 16);
        uint8_t active = cursor_u8(&c);

        cursor_take(&c, 3);
        entries[i].type = cursor_u8(&c);
        cursor_take(&c, 3);
        entries[i].start = cursor_u32(&c);
        entries[i].length = cursor_u32(&c);
        /* A boot sector of a file system has the signature, too, and code where the table is. */
        if (active & 0x7f)
            return false;
    }
    return true;
}

static bool is_extended(uint8_t type)
{
    return type == 0x05 || type == 0x0f || type == 0x85;
}

/* Each extended boot record holds one partition, relative to itself, and a link to the next. */
static void add_logical(struct table *t, uint64_t extended, unsigned *number)
{
    uint64_t at = extended;

    for (unsigned links = 0; links < LOGICAL_MAX; links++) {
        struct mbr_entry entries[MBR_ENTRIES];
        uint64_t next = 0;

        if (!read_boot_record(t, at, entries))
            return;
        for (unsigned i = 0; i < MBR_ENTRIES; i++) {
            if (entries[i].length == 0)
                continue;
            if (!is_extended(entries[i].type))
                add(t, (*number)++, at + entries[i].start, entries[i].length);
            else if (next == 0)
                next = extended + entries[i].start;
        }
        if (next <= extended)
            return;
        at = next;
    }
}

static void add_mbr(struct table *t, const struct mbr_entry entries[MBR_ENTRIES])
{
    unsigned number = FIRST_LOGICAL;

    for (unsigned i = 0; i < MBR_ENTRIES; i++) {
        if (is_extended(entries[i].type))
            add_logical(t, entries[i].start, &number);
        else if (entries[i].type != 0)
            add(t, i + 1, entries[i].start, entries[i].length);
    }
}

struct gpt_header {
    bool present, intact;
    uint64_t entries_at; /* in sectors */
    uint32_t entries, entry_len;
};

static struct gpt_header read_gpt_header(const struct table *t, uint64_t sector)
{
    struct gpt_header h = {0};
    uint8_t raw[SECTOR];

    if (sector >= t->sectors || !read_at(t->disk, sector * SECTOR, raw, sizeof(raw)) ||
        memcmp(raw, "EFI PART", 8) != 0)
        return h;

    struct cursor c = cursor_of(raw + 12, GPT_HEADER_LEN - 12);
    uint32_t header_len = cursor_u32(&c), crc = cursor_u32(&c);

    cursor_take(&c, 72 - 20);
    h.entries_at = cursor_u64(&c);
    h.entries = cursor_u32(&c);
    h.entry_len = cursor_u32(&c);
    if (h.entry_len < GPT_ENTRY_MIN || h.entry_len > GPT_ENTRY_MAX || h.entries_at >= t->sectors)
        return h;
    if (h.entries > GPT_ENTRIES_MAX)
        h.entries = GPT_ENTRIES_MAX;
    h.present = true;
    if (header_len >= GPT_HEADER_LEN && header_len <= sizeof(raw)) {
        memset(raw + 16, 0, 4); /* the checksum is taken with itself as 0 */
        h.intact = crc32(0, raw, header_len) == crc;
    }
    return h;
}

static bool add_gpt(struct table *t)
{
    struct gpt_header h = read_gpt_header(t, 1);

    if (!h.intact && t->sectors > 1) {
        struct gpt_header backup = read_gpt_header(t, t->sectors - 1);

        if (backup.intact || !h.present)
            h = backup;
    }
    if (!h.present)
        return false;
    for (uint32_t i = 0; i < h.entries; i++) {
        static const uint8_t unused[16];
        uint8_t raw[GPT_ENTRY_MIN];

        if (!read_at(t->disk, h.entries_at * SECTOR + (uint64_t)i * h.entry_len, raw, sizeof(raw)))
            break;
        if (memcmp(raw, unused, sizeof(unused)) == 0)
            continue;

        struct cursor c = cursor_of(raw + 32, 16);
        uint64_t first = cursor_u64(&c), last = cursor_u64(&c);

        if (last >= first && last < t->sectors)
            add(t, i + 1, first, last - first + 1);
    }
    return true;
}

size_t disk_partitions(struct disk *disk, struct disk_partition *out, size_t max)
{
    struct table t = {.disk = disk, .sectors = disk->size / SECTOR, .out = out, .max = max};
    struct mbr_entry entries[MBR_ENTRIES];

    if (!read_boot_record(&t, 0, entries))
        return 0;
    for (unsigned i = 0; i < MBR_ENTRIES; i++)
        if (entries[i].type == MBR_PROTECTIVE && add_gpt(&t))
            return t.count;
    add_mbr(&t, entries);
    return t.count;
}
