#include "recording/block_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define END_BLOCK_BYTES (BLOCK_HEADER_BYTES + END_RAW_BYTES)

void block_totals_add(struct block_totals *t, struct recording_block *b)
{
    switch (b->type) {
    case BLOCK_STREAM:
        b->start = t->streams[b->stream];
        t->streams[b->stream] += b->raw_len;
        break;
    case BLOCK_CHUNKS:
        b->start = t->chunks + 1;
        t->chunks += b->items;
        break;
    case BLOCK_EPOCH:
        t->epochs++;
        break;
    default:
        break;
    }
}

bool block_totals_match(const struct block_totals *t, const uint8_t *raw, size_t len)
{
    struct cursor c = cursor_of(raw, len);

    if (cursor_varint(&c) != t->epochs || cursor_varint(&c) != t->chunks)
        return false;
    uint64_t streams = cursor_varint(&c);
    if (streams > STREAM_COUNT)
        return false;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        if ((i < streams ? cursor_varint(&c) : 0) != t->streams[i])
            return false;
    return !c.bad && cursor_left(&c) == 0;
}

/*
 * Append the block that *h describes; it lies at `offset` and must fit before `limit`. Its header
 * fields were checked.
 */
static int add_block(struct recording *r, const struct block_header *h, uint64_t offset,
                     uint64_t limit, struct err *e)
{
    if (limit - offset < BLOCK_HEADER_BYTES || h->stored_len > limit - offset - BLOCK_HEADER_BYTES)
        return recording_damaged(r, offset, "a block runs into the next one", e);
    if ((h->type == BLOCK_META) != (r->count == 0))
        return recording_damaged(r, offset,
                                 "the description of the machine is not where it must be", e);
    if (r->count == RECORDING_BLOCKS)
        return recording_damaged(r, offset, "too many blocks", e);
    if (r->count == r->cap) {
        uint32_t cap = r->cap ? r->cap * 2 : 256;
        struct recording_block *blocks = realloc(r->blocks, cap * sizeof *blocks);
        if (!blocks)
            return err_set(e, STATUS_ERROR, "out of memory");
        r->blocks = blocks;
        r->cap = cap;
    }
    struct recording_block *b = &r->blocks[r->count++];
    *b = (struct recording_block){
        .offset = offset,
        .raw_len = h->raw_len,
        .stored_len = h->stored_len,
        .items = h->items,
        .type = h->type,
        .stream = h->stream,
    };
    block_totals_add(&r->totals, b);
    if (r->totals.chunks > CHUNK_MAX_ID)
        return recording_damaged(r, offset, "too many chunks", e);
    return 0;
}

/* Whether there is a whole END block that ends at `end`: then r->end is what it says. -1 on a read
 * error. */
static int find_end(struct recording *r, uint64_t end, struct block_header *h, struct err *e)
{
    uint8_t block[END_BLOCK_BYTES];

    if (end < FILE_HEADER_BYTES + END_BLOCK_BYTES)
        return 0;
    if (recording_pread(r, end - END_BLOCK_BYTES, block, sizeof block, e))
        return -1;
    if (!block_header_decode(h, block) || h->type != BLOCK_END || block_header_fault(h) ||
        crc32_of(block + BLOCK_HEADER_BYTES, END_RAW_BYTES) != h->stored_crc)
        return 0;
    end_record_decode(&r->end, block + BLOCK_HEADER_BYTES);
    return 1;
}

/* Take one INDEX block's entries; *offset is where the first of the blocks lies, then the next. */
static int add_entries(struct recording *r, const uint8_t *raw, unsigned entries, uint64_t *offset,
                       struct err *e)
{
    struct cursor c = cursor_of(raw, (size_t)entries * INDEX_ENTRY_BYTES);

    for (unsigned i = 0; i < entries; i++) {
        struct block_header h = {0};
        h.stored_len = cursor_u32(&c);
        h.raw_len = cursor_u32(&c);
        h.items = cursor_u16(&c);
        h.type = cursor_u8(&c);
        h.stream = cursor_u8(&c);
        const char *fault = block_header_fault(&h);
        if (fault || h.type > BLOCK_END || h.type == BLOCK_CHECKPOINT)
            return recording_damaged(r, *offset, fault ? fault : "wrong type in the index", e);
        if (add_block(r, &h, *offset, r->end.index_offset, e))
            return -1;
        *offset += BLOCK_HEADER_BYTES + (uint64_t)h.stored_len;
    }
    return 0;
}

static int check_last_epoch(struct recording *r, struct err *e)
{
    uint8_t raw[EPOCH_MAX_RAW];
    const struct recording_block *b = &r->blocks[r->count - 1];

    if (r->count == 0 || b->type != BLOCK_EPOCH)
        return recording_damaged(r, r->end.index_offset, "no epoch before the index", e);
    if (recording_load(r, r->count - 1, raw, e))
        return -1;
    if (!block_totals_match(&r->totals, raw, b->raw_len) || r->end.epochs != r->totals.epochs ||
        r->end.chunks != r->totals.chunks)
        return recording_damaged(r, b->offset, "the totals do not add up", e);
    return 0;
}

/* Fill the table from the index of a file that has an END. */
static int read_index(struct recording *r, const struct block_header *end_header, struct err *e)
{
    const uint64_t end_offset = r->size - END_BLOCK_BYTES;
    uint64_t at = r->end.index_offset, offset = FILE_HEADER_BYTES;
    uint8_t header[BLOCK_HEADER_BYTES];

    if (at < FILE_HEADER_BYTES || at > end_offset ||
        end_header->ordinal != (uint64_t)r->end.blocks + r->end.index_blocks)
        return recording_damaged(r, end_offset, "the end mark contradicts itself", e);
    uint8_t *raw = malloc(BLOCK_MAX_RAW);
    if (!raw)
        return err_set(e, STATUS_ERROR, "out of memory");
    int rc = 0;
    for (uint32_t i = 0; i < r->end.index_blocks && !rc; i++) {
        struct block_header h;
        if (end_offset - at < BLOCK_HEADER_BYTES)
            rc = recording_damaged(r, at, "the index is cut short", e);
        else if (recording_pread(r, at, header, sizeof header, e))
            rc = -1;
        else if (!block_header_decode(&h, header) || block_header_fault(&h) ||
                 h.type != BLOCK_INDEX || h.ordinal != r->end.blocks + i ||
                 h.stored_len > end_offset - at - BLOCK_HEADER_BYTES)
            rc = recording_damaged(r, at, "not a block of the index", e);
        else if (recording_load_stored(r, at, &h, raw, e) != LOAD_OK ||
                 add_entries(r, raw, h.items, &offset, e))
            rc = -1;
        else
            at += BLOCK_HEADER_BYTES + (uint64_t)h.stored_len;
    }
    free(raw);
    if (rc)
        return rc;
    if (at != end_offset || offset != r->end.index_offset || r->count != r->end.blocks)
        return recording_damaged(r, r->end.index_offset, "the index does not add up", e);
    return check_last_epoch(r, e);
}

/* 1 when the file has nothing but zeroes from offset on: what a host's crash can leave. */
static int only_zeroes(const struct recording *r, uint64_t offset, struct err *e)
{
    uint8_t piece[4096];

    while (offset < r->size) {
        size_t n = r->size - offset < sizeof piece ? (size_t)(r->size - offset) : sizeof piece;
        if (recording_pread(r, offset, piece, n, e))
            return -1;
        for (size_t i = 0; i < n; i++)
            if (piece[i])
                return 0;
        offset += n;
    }
    return 1;
}

enum step { STEP_NEXT, STEP_TORN, STEP_ERROR };

/* Look at the header at `offset` of a file without END: fill *h, or find the torn end. */
static enum step next_header(struct recording *r, uint64_t offset, uint32_t ordinal,
                             struct block_header *h, struct err *e)
{
    uint8_t header[BLOCK_HEADER_BYTES];
    uint64_t left = r->size - offset;

    if (left < sizeof header)
        return STEP_TORN;
    if (recording_pread(r, offset, header, sizeof header, e))
        return STEP_ERROR;
    const char *fault = NULL;
    if (!block_header_decode(h, header)) {
        int zeroes = only_zeroes(r, offset, e);
        if (zeroes)
            return zeroes < 0 ? STEP_ERROR : STEP_TORN;
        fault = "checksum of a block header";
    } else {
        fault = block_header_fault(h);
        if (!fault && h->ordinal != ordinal)
            fault = "a block is missing or out of order";
    }
    if (fault) {
        recording_damaged(r, offset, fault, e);
        return STEP_ERROR;
    }
    return h->stored_len > left - sizeof header ? STEP_TORN : STEP_NEXT;
}

/* Check the EPOCH block that was just added. A bad one that ends the file counts as torn. */
static enum step check_epoch(struct recording *r, const struct block_header *h, uint64_t offset,
                             bool at_end, struct err *e)
{
    uint8_t raw[EPOCH_MAX_RAW];
    enum load_result loaded = recording_load_stored(r, offset, h, raw, e);

    if (loaded == LOAD_DAMAGED && at_end)
        return STEP_TORN;
    if (loaded != LOAD_OK)
        return STEP_ERROR;
    if (!block_totals_match(&r->totals, raw, h->raw_len)) {
        recording_damaged(r, offset, "the totals do not add up", e);
        return STEP_ERROR;
    }
    return STEP_NEXT;
}

/* Forget what was read, and read the file as far as an END that was found in it. */
static int read_finished(struct recording *r, uint64_t size, const struct block_header *end_header,
                         struct err *e)
{
    r->size = size;
    r->count = 0;
    r->totals = (struct block_totals){0};
    r->complete = true;
    return read_index(r, end_header, e);
}

/*
 * Walk a file that does not end in END from header to header, and keep what comes before the last
 * whole epoch; or everything up to an END, when the file was finished once and an addition to it
 * was not. A block is torn, rather than damaged, only when nothing can follow it.
 */
static int walk(struct recording *r, struct err *e)
{
    uint64_t offset = FILE_HEADER_BYTES, finished = 0;
    struct block_header end_header;
    uint32_t ordinal = 0, kept = 0;
    struct block_totals kept_totals = {0};
    bool index_seen = false;
    enum step step = STEP_NEXT;

    while (offset < r->size) {
        struct block_header h;
        step = next_header(r, offset, ordinal, &h, e);
        if (step != STEP_NEXT)
            break;
        uint64_t next = offset + BLOCK_HEADER_BYTES + h.stored_len;
        /* A whole END at the end of the file would have been found before. */
        if (h.type == BLOCK_END && next == r->size)
            break;
        if (index_seen && h.type != BLOCK_INDEX && h.type != BLOCK_END)
            return recording_damaged(r, offset, "something follows the index", e);
        if (h.type == BLOCK_INDEX) {
            index_seen = true;
        } else if (h.type == BLOCK_END) {
            const int whole = find_end(r, next, &end_header, e);
            if (whole <= 0)
                return whole < 0 ? -1 : recording_damaged(r, offset, "contents of an end mark", e);
            index_seen = false;
            finished = next;
        } else {
            if (add_block(r, &h, offset, r->size, e))
                return -1;
            if (h.type == BLOCK_EPOCH) {
                step = check_epoch(r, &h, offset, next == r->size, e);
                if (step != STEP_NEXT)
                    break;
                kept = r->count;
                kept_totals = r->totals;
            }
        }
        offset = next;
        ordinal++;
    }
    if (step == STEP_ERROR)
        return -1;
    if (finished)
        return read_finished(r, finished, &end_header, e);
    if (!kept)
        return err_set(
            e, STATUS_BAD_RECORDING,
            "%s holds nothing to replay: its recorder was stopped too early; record again",
            r->path);
    r->count = kept;
    r->totals = kept_totals;
    return 0;
}

int block_table_build(struct recording *r, struct err *e)
{
    struct block_header end_header;
    int found = find_end(r, r->size, &end_header, e);

    if (found < 0)
        return -1;
    r->complete = found;
    return found ? read_index(r, &end_header, e) : walk(r, e);
}
