#include "recording/stream_reader.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct stream_reader {
    const struct recording *recording;
    unsigned stream;
    const struct block_list *blocks;
    uint64_t length; /* of the stream */

    struct bytes window;   /* the unpacked part of the stream */
    uint64_t window_start; /* its raw offset */
    size_t at;             /* the position within it */
    uint32_t next_block;   /* in the list: the one after the window */

    bool bad;
    struct err error; /* why, once bad */
};

struct stream_reader *stream_open(const struct recording *r, unsigned stream, struct err *e)
{
    struct stream_reader *s = calloc(1, sizeof *s);

    if (!s) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    s->recording = r;
    s->stream = stream;
    s->blocks = recording_stream_blocks(r, stream);
    s->length = recording_stream_length(r, stream);
    bytes_reserve(&s->window, 1); /* so that even an empty stream has an address */
    return s;
}

void stream_close(struct stream_reader *s)
{
    if (!s)
        return;
    bytes_free(&s->window);
    free(s);
}

/* Unpack the next block behind what is left of the window. */
static int load_next(struct stream_reader *s)
{
    uint32_t ordinal = s->blocks->ordinals[s->next_block];
    const struct recording_block *b = recording_block(s->recording, ordinal);
    size_t left = s->window.len - s->at;

    if (s->at) {
        memmove(s->window.data, s->window.data + s->at, left);
        s->window_start += s->at;
        s->window.len = left;
        s->at = 0;
    }
    assert(s->window_start + left == b->start);
    bytes_reserve(&s->window, b->raw_len);
    if (recording_load(s->recording, ordinal, s->window.data + left, &s->error)) {
        s->bad = true;
        return -1;
    }
    s->window.len += b->raw_len;
    s->next_block++;
    return 0;
}

const uint8_t *stream_peek(struct stream_reader *s, size_t n, size_t *got)
{
    assert(n <= STREAM_MAX_PEEK);
    *got = 0;
    if (s->bad)
        return NULL;
    while (s->window.len - s->at < n && s->next_block < s->blocks->count)
        if (load_next(s))
            return NULL;
    *got = s->window.len - s->at;
    return s->window.data + s->at;
}

static int past_end(struct stream_reader *s)
{
    s->bad = true;
    return err_set(&s->error, STATUS_BAD_RECORDING,
                   "%s is damaged: stream %u ends at byte %" PRIu64 ", within a record",
                   recording_path(s->recording), s->stream, s->length);
}

int stream_read(struct stream_reader *s, void *buf, size_t n)
{
    uint8_t *to = buf;
    size_t done = 0;

    if (!s->bad && n > stream_left(s))
        past_end(s);
    while (!s->bad && done < n) {
        size_t have = s->window.len - s->at;
        size_t part = have < n - done ? have : n - done;
        if (part) {
            memcpy(to + done, s->window.data + s->at, part);
            s->at += part;
            done += part;
        } else {
            load_next(s);
        }
    }
    if (s->bad && n)
        memset(buf, 0, n);
    return s->bad ? -1 : 0;
}

uint8_t stream_u8(struct stream_reader *s)
{
    uint8_t v = 0;

    if (!s->bad && s->at < s->window.len)
        return s->window.data[s->at++];
    stream_read(s, &v, 1);
    return v;
}

uint64_t stream_varint(struct stream_reader *s)
{
    size_t got;
    const uint8_t *p = stream_peek(s, 10, &got);

    if (s->bad)
        return 0;
    if (got && p[0] < 0x80) {
        s->at++;
        return p[0];
    }
    struct cursor c = cursor_of(p, got);
    uint64_t v = cursor_varint(&c);
    if (c.bad && got < 10) {
        past_end(s);
    } else if (c.bad) {
        s->bad = true;
        err_set(&s->error, STATUS_BAD_RECORDING,
                "%s is damaged: no number at byte %" PRIu64 " of stream %u",
                recording_path(s->recording), stream_tell(s), s->stream);
    } else {
        s->at += got - cursor_left(&c);
    }
    return v;
}

int64_t stream_svarint(struct stream_reader *s)
{
    uint64_t v = stream_varint(s);

    return (int64_t)((v >> 1) ^ (0 - (v & 1)));
}

uint64_t stream_left(const struct stream_reader *s)
{
    return s->bad ? 0 : s->length - stream_tell(s);
}

uint64_t stream_tell(const struct stream_reader *s)
{
    return s->window_start + s->at;
}

void stream_seek(struct stream_reader *s, uint64_t offset)
{
    s->bad = false;
    if (offset > s->length) {
        past_end(s);
        return;
    }
    if (offset >= s->window_start && offset - s->window_start <= s->window.len) {
        s->at = (size_t)(offset - s->window_start);
        return;
    }
    /* Not in the window, so not at its end and the list not empty. */
    uint32_t place = recording_find(s->recording, s->blocks, offset);
    s->window_start = recording_block(s->recording, s->blocks->ordinals[place])->start;
    s->window.len = s->at = 0;
    s->next_block = place;
    uint64_t within = offset - s->window_start;
    if (!within)
        return;
    if (!load_next(s))
        s->at = (size_t)within;
}

void stream_skip(struct stream_reader *s, uint64_t n)
{
    if (s->bad)
        return;
    if (n > stream_left(s))
        past_end(s);
    else
        stream_seek(s, stream_tell(s) + n);
}

bool stream_bad(const struct stream_reader *s)
{
    return s->bad;
}

int stream_error(const struct stream_reader *s, struct err *e)
{
    if (!s->bad)
        return 0;
    *e = s->error;
    return -1;
}
