#include "replay/core_compressed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "mmu/digest.h"
#include "replay/core_notes.h"

#define HEADER_VERSION 6
#define PACKED_BY_ZLIB 1u
/* A core is for disks that are faster than zlib's better levels. */
#define ZLIB_LEVEL 1
/* Where __START_KERNEL_map of Linux is: the kernel's image, by its virtual addresses. */
#define KERNEL_MAP 0xffffffff80000000ull
/* What is gathered before it is written, and between two looks at whether it is to stop. */
#define WRITE_BYTES (4u << 20)

/* makedumpfile's struct disk_dump_header, as x86-64 lays it out. */
struct header {
    char signature[8];
    int32_t version;
    char system[65], node[65], release[65], build[65], machine[65], domain[65];
    uint8_t padding[6];
    int64_t seconds, microseconds;
    uint32_t status, block_bytes;
    int32_t second_blocks;
    uint32_t bitmap_blocks, max_pfn, ram_blocks, device_blocks, written_blocks, current_cpu;
    int32_t cpus;
};

/* Its struct kdump_sub_header. */
struct second_header {
    uint64_t phys_base;
    int32_t level, split;
    uint64_t start_pfn, end_pfn;
    uint64_t info_at, info_len, notes_at, notes_len, erased_at, erased_len;
    uint64_t start_pfn_64, end_pfn_64, max_pfn_64;
};

struct descriptor {
    uint64_t at;
    uint32_t len, flags;
    uint64_t page_flags;
};

_Static_assert(sizeof(struct header) == 464 && sizeof(struct second_header) == 104 &&
                   sizeof(struct descriptor) == 24,
               "the layout that crash knows");

/* What is being written. */
struct packing {
    const struct guest_memory *memory;
    struct core_output *out;
    struct descriptor *descriptors; /* of all pages of RAM */
    struct bytes gathered;          /* data that is not written */
    uint64_t gathered_at;           /* where that belongs in the file */
};

static uint64_t blocks_of(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* Of the pages of RAM, the first behind the last. */
static uint64_t end_pfn(const struct guest_memory *m)
{
    return (m->high_size ? MEMORY_HIGH_BASE + m->high_size : m->low_size) / PAGE_BYTES;
}

/* Blocks of one of the two bitmaps, which are the same. */
static uint64_t bitmap_blocks(const struct guest_memory *m)
{
    return blocks_of((end_pfn(m) + 7) / 8);
}

/* ---- what comes before the descriptors ---- */

static void pad(struct bytes *b)
{
    bytes_reserve(b, PAGE_BYTES);
    while (b->len % PAGE_BYTES)
        bytes_put_u8(b, 0);
}

/* The value of KEY= in a text of such lines, cut to fit. */
static void copy_value(const struct core_kernel *k, const char *key, char *to, size_t size)
{
    const char *at = k->without ? NULL : memmem(k->info, k->info_len, key, strlen(key));
    size_t len = 0;

    if (!at)
        return;
    at += strlen(key);
    while (len + 1 < size && at + len < k->info + k->info_len && at[len] > ' ' && at[len] < 127)
        len++;
    memcpy(to, at, len);
    to[len] = 0;
}

static void put_headers(struct bytes *b, const struct core *core)
{
    const struct core_kernel *k = core->kernel;
    const uint64_t end = end_pfn(core->memory);
    struct bytes notes = {0};
    const size_t info = core_put_notes(&notes, core);
    const uint64_t notes_at = PAGE_BYTES + sizeof(struct second_header);
    const struct second_header second = {
        .phys_base = k->image.bytes ? k->image.gpa - (k->image.va - KERNEL_MAP) : 0,
        .end_pfn = end,
        .info_at = info ? notes_at + info : 0,
        .info_len = info ? k->info_len : 0,
        .notes_at = notes_at,
        .notes_len = notes.len,
        .end_pfn_64 = end,
        .max_pfn_64 = end,
    };
    struct header h = {
        .signature = {'K', 'D', 'U', 'M', 'P', ' ', ' ', ' '},
        .version = HEADER_VERSION,
        .system = "Linux",
        .node = "(none)", /* libkdumpfile believes no header in which one of these is empty */
        .build = "(none)",
        .domain = "(none)",
        .machine = "x86_64",
        .status = PACKED_BY_ZLIB,
        .block_bytes = PAGE_BYTES,
        .second_blocks = (int32_t)blocks_of(sizeof second + notes.len),
        .bitmap_blocks = (uint32_t)(2 * bitmap_blocks(core->memory)),
        .max_pfn = (uint32_t)end,
        .cpus = (int32_t)core->cpu_count,
    };

    copy_value(k, "OSRELEASE=", h.release, sizeof h.release);
    bytes_put(b, &h, sizeof h);
    pad(b);
    bytes_put(b, &second, sizeof second);
    bytes_put(b, notes.data, notes.len);
    pad(b);
    bytes_free(&notes);
}

static void put_bitmaps(struct bytes *b, const struct guest_memory *m)
{
    const uint64_t bytes = bitmap_blocks(m) * PAGE_BYTES;
    uint8_t *bitmap = calloc(1, bytes);

    assert(bitmap);
    for (uint64_t pfn = 0; pfn < end_pfn(m); pfn++)
        if (guest_memory_any(m, pfn * PAGE_BYTES, PAGE_BYTES))
            bitmap[pfn / 8] |= (uint8_t)(1u << pfn % 8);
    bytes_put(b, bitmap, bytes);
    bytes_put(b, bitmap, bytes);
    free(bitmap);
}

/* ---- pages ---- */

static int write_gathered(struct packing *p, struct err *e)
{
    if (core_output_write(p->out, p->gathered.data, p->gathered.len, p->gathered_at, e) < 0)
        return -1;
    p->gathered_at += p->gathered.len;
    bytes_clear(&p->gathered);
    return 0;
}

/* Add the bytes of a page, packed where that makes them fewer. */
static struct descriptor pack(struct packing *p, const uint8_t *page)
{
    uint8_t packed[PAGE_BYTES];
    uLongf len = sizeof packed;
    const bool smaller =
        compress2(packed, &len, page, PAGE_BYTES, ZLIB_LEVEL) == Z_OK && len < PAGE_BYTES;
    const struct descriptor d = {
        .at = p->gathered_at + p->gathered.len,
        .len = smaller ? (uint32_t)len : PAGE_BYTES,
        .flags = smaller ? PACKED_BY_ZLIB : 0,
    };

    bytes_put(&p->gathered, smaller ? packed : page, d.len);
    return d;
}

static int pack_touched(struct packing *p, struct err *e)
{
    const uint8_t *host = p->memory->host;
    uint64_t at = 0, end;

    for (; guest_memory_touched(p->memory, &at, &end); at = end)
        for (; at < end; at += PAGE_BYTES) {
            if (page_is_zero(host + at))
                continue;
            p->descriptors[at / PAGE_BYTES] = pack(p, host + at);
            p->out->bytes += PAGE_BYTES;
            if (p->gathered.len >= WRITE_BYTES &&
                (write_gathered(p, e) < 0 || core_output_done(p->out, at, e) < 0))
                return -1;
        }
    return core_output_done(p->out, p->memory->size, e);
}

/* The pages behind pack_touched(), which have no descriptor: all are zero. */
static void share_zeroes(struct packing *p)
{
    static const uint8_t zeroes[PAGE_BYTES];
    const struct descriptor shared = pack(p, zeroes);

    for (uint64_t i = 0; i < p->memory->size / PAGE_BYTES; i++)
        if (!p->descriptors[i].len)
            p->descriptors[i] = shared;
}

int core_compressed_write(const struct core *core, struct core_output *out, struct err *e)
{
    const struct guest_memory *m = core->memory;
    const uint64_t table = m->size / PAGE_BYTES * sizeof(struct descriptor);
    struct packing p = {.memory = m, .out = out, .descriptors = calloc(1, table)};
    struct bytes head = {0};

    assert(p.descriptors);
    put_headers(&head, core);
    put_bitmaps(&head, m);
    p.gathered_at = head.len + table;
    int rc = pack_touched(&p, e);
    if (rc == 0) {
        share_zeroes(&p);
        rc = write_gathered(&p, e);
    }
    if (rc == 0)
        rc = core_output_write(out, head.data, head.len, 0, e);
    if (rc == 0)
        rc = core_output_write(out, p.descriptors, table, head.len, e);
    bytes_free(&head);
    bytes_free(&p.gathered);
    free(p.descriptors);
    return rc;
}
