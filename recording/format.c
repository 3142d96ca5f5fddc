#include "recording/format.h"

#include <string.h>
#include <zlib.h>

#include "base/bytes.h"

static void store_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void store_u32(uint8_t *p, uint32_t v)
{
    store_u16(p, (uint16_t)v);
    store_u16(p + 2, (uint16_t)(v >> 16));
}

static void store_u64(uint8_t *p, uint64_t v)
{
    store_u32(p, (uint32_t)v);
    store_u32(p + 4, (uint32_t)(v >> 32));
}

uint32_t crc32_of(const void *data, size_t len)
{
    return (uint32_t)crc32_z(0, data, len);
}

void file_header_encode(uint8_t out[FILE_HEADER_BYTES], uint32_t version)
{
    memset(out, 0, FILE_HEADER_BYTES);
    memcpy(out, RECORDING_MAGIC, 8);
    store_u32(out + 8, version);
    store_u32(out + 28, crc32_of(out, 28));
}

uint32_t file_header_version(const uint8_t in[FILE_HEADER_BYTES])
{
    struct cursor c = cursor_of(in + 8, 4);

    return cursor_u32(&c);
}

bool file_header_valid(const uint8_t in[FILE_HEADER_BYTES])
{
    const uint32_t version = file_header_version(in);
    uint8_t expected[FILE_HEADER_BYTES];

    file_header_encode(expected, version);
    return version >= RECORDING_OLDEST && version <= RECORDING_VERSION &&
           memcmp(in, expected, FILE_HEADER_BYTES) == 0;
}

void block_header_encode(uint8_t out[BLOCK_HEADER_BYTES], const struct block_header *h)
{
    out[0] = h->type;
    out[1] = h->stream;
    store_u16(out + 2, h->items);
    store_u32(out + 4, h->ordinal);
    store_u32(out + 8, h->raw_len);
    store_u32(out + 12, h->stored_len);
    store_u32(out + 16, h->stored_crc);
    store_u32(out + 20, crc32_of(out, 20));
}

bool block_header_decode(struct block_header *h, const uint8_t in[BLOCK_HEADER_BYTES])
{
    struct cursor c = cursor_of(in, BLOCK_HEADER_BYTES);

    h->type = cursor_u8(&c);
    h->stream = cursor_u8(&c);
    h->items = cursor_u16(&c);
    h->ordinal = cursor_u32(&c);
    h->raw_len = cursor_u32(&c);
    h->stored_len = cursor_u32(&c);
    h->stored_crc = cursor_u32(&c);
    return cursor_u32(&c) == crc32_of(in, 20);
}

const char *block_header_fault(const struct block_header *h)
{
    if (h->raw_len == 0 || h->raw_len > BLOCK_MAX_RAW)
        return "impossible raw length";
    if (h->stored_len == 0 || h->stored_len > h->raw_len)
        return "impossible stored length";
    if (h->stream >= STREAM_COUNT || (h->stream != 0 && h->type != BLOCK_STREAM))
        return "impossible stream number";
    if (h->items != 0 && h->type != BLOCK_CHUNKS && h->type != BLOCK_INDEX)
        return "impossible number of items";
    switch (h->type) {
    case BLOCK_META:
    case BLOCK_STREAM:
        return NULL;
    case BLOCK_CHUNKS: /* a chunk has at least one byte, and two of length */
        return h->items >= 1 && h->items <= h->raw_len / 3 ? NULL : "impossible number of chunks";
    case BLOCK_EPOCH:
        return h->raw_len <= EPOCH_MAX_RAW ? NULL : "impossible raw length";
    case BLOCK_INDEX:
        return h->raw_len == h->items * INDEX_ENTRY_BYTES ? NULL : "impossible number of entries";
    case BLOCK_END:
        return h->raw_len == END_RAW_BYTES && h->stored_len == END_RAW_BYTES
                   ? NULL
                   : "impossible raw length";
    default:
        return "unknown block type";
    }
}

bool chunk_lengths_valid(const uint8_t *raw, uint32_t raw_len, uint32_t items)
{
    uint64_t sum = 0;

    if (raw_len < items * 2)
        return false;
    struct cursor c = cursor_of(raw + raw_len - items * 2, items * 2);
    for (uint32_t i = 0; i < items; i++) {
        uint16_t len = cursor_u16(&c);
        if (len == 0 || len > CHUNK_MAX_BYTES)
            return false;
        sum += len;
    }
    return sum == raw_len - items * 2;
}

void end_record_encode(uint8_t out[END_RAW_BYTES], const struct end_record *end)
{
    memset(out, 0, END_RAW_BYTES);
    store_u32(out, end->blocks);
    store_u32(out + 4, end->index_blocks);
    store_u64(out + 8, end->index_offset);
    store_u64(out + 16, end->epochs);
    store_u64(out + 24, end->chunks);
    store_u32(out + 32, end->reason_code);
    memcpy(out + 40, end->digest, DIGEST_BYTES);
    memcpy(out + END_REASON_OFFSET, end->reason, strnlen(end->reason, END_REASON_BYTES));
}

void end_record_decode(struct end_record *end, const uint8_t in[END_RAW_BYTES])
{
    struct cursor c = cursor_of(in, END_RAW_BYTES);

    end->blocks = cursor_u32(&c);
    end->index_blocks = cursor_u32(&c);
    end->index_offset = cursor_u64(&c);
    end->epochs = cursor_u64(&c);
    end->chunks = cursor_u64(&c);
    end->reason_code = cursor_u32(&c);
    (void)cursor_u32(&c);
    cursor_get(&c, end->digest, DIGEST_BYTES);
    cursor_get(&c, end->reason, END_REASON_BYTES);
    end->reason[END_REASON_BYTES] = 0;
    /* The text goes to terminals: no escape sequences out of a hostile file. */
    for (char *p = end->reason; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}
