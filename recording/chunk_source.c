#include "recording/chunk_source.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define CACHED_BLOCKS 8u

struct cached_block {
    bool valid;
    uint32_t ordinal;
    uint64_t used; /* the clock when it was used last */
    struct bytes raw;
    struct bytes starts; /* uint32_t for each chunk, and one more: where it begins in raw */
};

struct chunk_source {
    const struct recording *recording;
    struct cached_block cache[CACHED_BLOCKS];
    uint64_t clock;
};

struct chunk_source *chunk_source_open(const struct recording *r, struct err *e)
{
    struct chunk_source *s = calloc(1, sizeof *s);

    if (!s) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    s->recording = r;
    return s;
}

void chunk_source_close(struct chunk_source *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < CACHED_BLOCKS; i++) {
        bytes_free(&s->cache[i].raw);
        bytes_free(&s->cache[i].starts);
    }
    free(s);
}

static int load_block(struct chunk_source *s, struct cached_block *c, uint32_t ordinal,
                      struct err *e)
{
    const struct recording_block *b = recording_block(s->recording, ordinal);
    uint32_t start = 0;

    c->valid = false;
    bytes_clear(&c->raw);
    bytes_clear(&c->starts);
    bytes_reserve(&c->raw, b->raw_len);
    if (recording_load(s->recording, ordinal, c->raw.data, e))
        return -1;
    if (!chunk_lengths_valid(c->raw.data, b->raw_len, b->items))
        return recording_damaged(s->recording, b->offset, "lengths of the chunks", e);
    c->raw.len = b->raw_len;

    struct cursor lengths = cursor_of(c->raw.data + b->raw_len - b->items * 2u, b->items * 2u);
    bytes_put(&c->starts, &start, sizeof start);
    for (unsigned i = 0; i < b->items; i++) {
        start += cursor_u16(&lengths);
        bytes_put(&c->starts, &start, sizeof start);
    }
    c->ordinal = ordinal;
    c->valid = true;
    return 0;
}

/* The unpacked block, from the cache or in place of the one unused for longest. */
static struct cached_block *get_block(struct chunk_source *s, uint32_t ordinal, struct err *e)
{
    struct cached_block *oldest = &s->cache[0];

    s->clock++;
    for (unsigned i = 0; i < CACHED_BLOCKS; i++) {
        struct cached_block *c = &s->cache[i];
        if (c->valid && c->ordinal == ordinal) {
            c->used = s->clock;
            return c;
        }
        if (!c->valid || (oldest->valid && c->used < oldest->used))
            oldest = c;
    }
    if (load_block(s, oldest, ordinal, e))
        return NULL;
    oldest->used = s->clock;
    return oldest;
}

int chunk_read(struct chunk_source *s, uint64_t id, void *page, size_t *len, struct err *e)
{
    uint32_t bounds[2];

    if (id == CHUNK_ZERO_PAGE) {
        memset(page, 0, CHUNK_MAX_BYTES);
        *len = CHUNK_MAX_BYTES;
        return 0;
    }
    if (id > recording_chunks(s->recording))
        return err_set(e, STATUS_BAD_RECORDING,
                       "%s is damaged: it refers to page %" PRIu64 " and has only %" PRIu64,
                       recording_path(s->recording), id, recording_chunks(s->recording));

    const struct block_list *list = recording_chunk_blocks(s->recording);
    uint32_t ordinal = list->ordinals[recording_find(s->recording, list, id)];
    struct cached_block *c = get_block(s, ordinal, e);
    if (!c)
        return -1;
    uint64_t place = id - recording_block(s->recording, ordinal)->start;
    memcpy(bounds, c->starts.data + place * sizeof *bounds, sizeof bounds);
    *len = bounds[1] - bounds[0];
    memcpy(page, c->raw.data + bounds[0], *len);
    memset((uint8_t *)page + *len, 0, CHUNK_MAX_BYTES - *len);
    return 0;
}

static int by_chunk(const void *a, const void *b)
{
    const struct page_chunk *x = a, *y = b;

    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

int chunk_read_pages(struct chunk_source *s, struct page_chunk *list, size_t count, uint8_t *memory,
                     struct err *e)
{
    size_t len;

    qsort(list, count, sizeof *list, by_chunk);
    for (size_t i = 0; i < count; i++)
        if (chunk_read(s, list[i].chunk, memory + (uint64_t)list[i].page * CHUNK_MAX_BYTES, &len,
                       e) < 0)
            return -1;
    return 0;
}
