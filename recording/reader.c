#include "recording/reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "recording/block_table.h"
#include "recording/pack.h"

int recording_damaged(const struct recording *r, uint64_t offset, const char *what, struct err *e)
{
    return err_set(e, STATUS_BAD_RECORDING,
                   "%s is damaged at byte %" PRIu64 " (%s); use an undamaged copy or record again",
                   r->path, offset, what);
}

int recording_pread(const struct recording *r, uint64_t offset, void *out, size_t len,
                    struct err *e)
{
    uint8_t *at = out;

    while (len) {
        ssize_t n = pread(r->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, STATUS_ERROR, "cannot read %s: %s", r->path, strerror(errno));
        if (n == 0)
            return recording_damaged(r, offset, "the file became shorter", e);
        at += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

enum load_result recording_load_stored(const struct recording *r, uint64_t offset,
                                       const struct block_header *h, uint8_t *raw, struct err *e)
{
    bool packed = h->stored_len != h->raw_len;
    uint8_t *stored = packed ? malloc(h->stored_len) : raw;

    assert(!block_header_fault(h));
    if (!stored) {
        err_set(e, STATUS_ERROR, "out of memory");
        return LOAD_ERROR;
    }
    enum load_result result = LOAD_ERROR;
    if (!recording_pread(r, offset + BLOCK_HEADER_BYTES, stored, h->stored_len, e)) {
        if (crc32_of(stored, h->stored_len) != h->stored_crc) {
            recording_damaged(r, offset, "checksum of a block", e);
            result = LOAD_DAMAGED;
        } else if (packed && !unpack(raw, h->raw_len, stored, h->stored_len)) {
            recording_damaged(r, offset, "compressed data of a block", e);
            result = LOAD_DAMAGED;
        } else {
            result = LOAD_OK;
        }
    }
    if (packed)
        free(stored);
    return result;
}

int recording_load(const struct recording *r, uint32_t ordinal, uint8_t *raw, struct err *e)
{
    const struct recording_block *b = recording_block(r, ordinal);
    uint8_t header[BLOCK_HEADER_BYTES];
    struct block_header h;

    if (recording_pread(r, b->offset, header, sizeof header, e))
        return -1;
    if (!block_header_decode(&h, header))
        return recording_damaged(r, b->offset, "checksum of a block header", e);
    /* The table may come from an index that lies. */
    if (h.type != b->type || h.stream != b->stream || h.items != b->items || h.ordinal != ordinal ||
        h.raw_len != b->raw_len || h.stored_len != b->stored_len)
        return recording_damaged(r, b->offset, "a block is not what the index says", e);
    return recording_load_stored(r, b->offset, &h, raw, e) == LOAD_OK ? 0 : -1;
}

/* Sort the blocks into the lists; the totals are known. */
static int build_lists(struct recording *r, struct err *e)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < r->count; i++) {
            const struct recording_block *b = &r->blocks[i];
            struct block_list *list = b->type == BLOCK_STREAM   ? &r->streams[b->stream]
                                      : b->type == BLOCK_CHUNKS ? &r->chunks
                                                                : NULL;
            if (list && pass == 1)
                list->ordinals[list->count] = i;
            if (list)
                list->count++;
        }
        for (unsigned i = 0; i <= STREAM_COUNT && pass == 0; i++) {
            struct block_list *list = i < STREAM_COUNT ? &r->streams[i] : &r->chunks;
            list->ordinals = calloc(list->count + 1, sizeof *list->ordinals);
            if (!list->ordinals)
                return err_set(e, STATUS_ERROR, "out of memory");
            list->count = 0;
        }
    }
    return 0;
}

static int check_file_header(struct recording *r, struct err *e)
{
    uint8_t header[FILE_HEADER_BYTES] = {0}, expected[FILE_HEADER_BYTES];
    size_t len = r->size < sizeof header ? (size_t)r->size : sizeof header;

    if (recording_pread(r, 0, header, len, e))
        return -1;
    /* A recorder killed at once leaves a piece of a header, or none. */
    file_header_encode(expected, RECORDING_VERSION);
    if (len < sizeof header && memcmp(header, expected, len) == 0)
        return err_set(
            e, STATUS_BAD_RECORDING,
            "%s holds nothing to replay: its recorder was stopped too early; record again",
            r->path);
    if (memcmp(header, RECORDING_MAGIC, 8) != 0 || len < sizeof header)
        return err_set(e, STATUS_BAD_RECORDING, "%s is not a dittovm recording", r->path);

    const uint32_t version = file_header_version(header);
    if (version < RECORDING_OLDEST || version > RECORDING_VERSION)
        return err_set(e, STATUS_BAD_RECORDING,
                       "%s has recording format version %" PRIu32 "; this dittovm reads versions "
                       "%u to %u: use the dittovm that recorded it",
                       r->path, version, RECORDING_OLDEST, RECORDING_VERSION);
    if (!file_header_valid(header))
        return recording_damaged(r, 0, "file header", e);
    r->version = version;
    return 0;
}

/* A lock of ours for a moment does no harm: the recorder has had its own from the start. */
static bool has_recorder(const struct recording *r)
{
    if (r->complete)
        return false;
    if (getenv(RECORDING_IN_PROGRESS_VARIABLE))
        return true;
    if (flock(r->fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK;
    flock(r->fd, LOCK_UN);
    return false;
}

static int open_recording(struct recording *r, struct err *e)
{
    struct stat st;

    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0)
        return err_set(e, STATUS_ERROR, "cannot open %s: %s", r->path, strerror(errno));
    if (fstat(r->fd, &st))
        return err_set(e, STATUS_ERROR, "cannot examine %s: %s", r->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, STATUS_BAD_RECORDING, "%s is not a dittovm recording, nor a regular file",
                       r->path);
    r->size = (uint64_t)st.st_size;
    if (check_file_header(r, e) || block_table_build(r, e) || build_lists(r, e))
        return -1;
    r->in_progress = has_recorder(r);

    /* The first block is META: block_table_build saw to that. */
    r->meta = calloc(1, (size_t)r->blocks[0].raw_len + 1);
    if (!r->meta)
        return err_set(e, STATUS_ERROR, "out of memory");
    return recording_load(r, 0, (uint8_t *)r->meta, e);
}

struct recording *recording_open(const char *path, struct err *e)
{
    struct recording *r = calloc(1, sizeof *r);

    if (r) {
        r->fd = -1;
        r->path = strdup(path);
    }
    if (!r || !r->path) {
        free(r);
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    if (open_recording(r, e)) {
        recording_close(r);
        return NULL;
    }
    return r;
}

void recording_close(struct recording *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        free(r->streams[i].ordinals);
    free(r->chunks.ordinals);
    free(r->blocks);
    free(r->meta);
    free(r->path);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
}

const char *recording_path(const struct recording *r)
{
    return r->path;
}

uint64_t recording_file_size(const struct recording *r)
{
    return r->size;
}

uint32_t recording_version(const struct recording *r)
{
    return r->version;
}

bool recording_in_progress(const struct recording *r)
{
    return r->in_progress;
}

bool recording_complete(const struct recording *r)
{
    return r->complete;
}

const struct end_record *recording_end(const struct recording *r)
{
    return r->complete ? &r->end : NULL;
}

uint64_t recording_epochs(const struct recording *r)
{
    return r->totals.epochs;
}

uint64_t recording_chunks(const struct recording *r)
{
    return r->totals.chunks;
}

uint64_t recording_stream_length(const struct recording *r, unsigned stream)
{
    assert(stream < STREAM_COUNT);
    return r->totals.streams[stream];
}

uint64_t recording_stored_bytes(const struct recording *r, enum block_type type, unsigned stream)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < r->count; i++) {
        const struct recording_block *b = &r->blocks[i];
        if (b->type == type && (type != BLOCK_STREAM || b->stream == stream))
            sum += BLOCK_HEADER_BYTES + (uint64_t)b->stored_len;
    }
    return sum;
}

const char *recording_meta(const struct recording *r, size_t *len)
{
    *len = r->blocks[0].raw_len;
    return r->meta;
}

const struct block_list *recording_stream_blocks(const struct recording *r, unsigned stream)
{
    assert(stream < STREAM_COUNT);
    return &r->streams[stream];
}

const struct block_list *recording_chunk_blocks(const struct recording *r)
{
    return &r->chunks;
}

const struct recording_block *recording_block(const struct recording *r, uint32_t ordinal)
{
    assert(ordinal < r->count);
    return &r->blocks[ordinal];
}

uint32_t recording_find(const struct recording *r, const struct block_list *list, uint64_t position)
{
    uint32_t low = 0, high = list->count;

    assert(high > 0 && recording_block(r, list->ordinals[0])->start <= position);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (recording_block(r, list->ordinals[middle])->start <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Compare END's digest with the headers of all blocks before it. */
static int verify_digest(const struct recording *r, struct err *e)
{
    const uint64_t end_offset = r->size - BLOCK_HEADER_BYTES - END_RAW_BYTES;
    uint8_t header[BLOCK_HEADER_BYTES];
    struct block_header h;
    XXH128_canonical_t digest;
    XXH3_state_t *state = XXH3_createState();
    int rc = 0;

    if (!state)
        return err_set(e, STATUS_ERROR, "out of memory");
    XXH3_128bits_reset(state);
    for (uint64_t at = FILE_HEADER_BYTES; at < end_offset && !rc;) {
        rc = recording_pread(r, at, header, sizeof header, e);
        if (!rc && !block_header_decode(&h, header))
            rc = recording_damaged(r, at, "checksum of a block header", e);
        if (!rc) {
            XXH3_128bits_update(state, header, sizeof header);
            at += BLOCK_HEADER_BYTES + (uint64_t)h.stored_len;
        }
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    if (!rc && memcmp(digest.digest, r->end.digest, DIGEST_BYTES) != 0)
        rc = recording_damaged(r, end_offset, "digest of all blocks", e);
    return rc;
}

int recording_verify_all(const struct recording *r, struct err *e)
{
    struct block_totals totals = {0};
    uint8_t *raw = malloc(BLOCK_MAX_RAW);
    int rc = 0;

    if (!raw)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (uint32_t i = 0; i < r->count && !rc; i++) {
        struct recording_block b = r->blocks[i];
        rc = recording_load(r, i, raw, e);
        if (rc)
            break;
        block_totals_add(&totals, &b);
        if (b.type == BLOCK_EPOCH && !block_totals_match(&totals, raw, b.raw_len))
            rc = recording_damaged(r, b.offset, "the totals do not add up", e);
        if (b.type == BLOCK_CHUNKS && !chunk_lengths_valid(raw, b.raw_len, b.items))
            rc = recording_damaged(r, b.offset, "lengths of the chunks", e);
    }
    free(raw);
    return rc || !r->complete ? rc : verify_digest(r, e);
}
