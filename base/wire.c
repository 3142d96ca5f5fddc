#include "base/wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

#include "base/limits.h"

void wire_remove(struct wire_queue *q, size_t len)
{
    assert(len <= q->len);
    q->start += len;
    q->len -= len;
    if (!q->len)
        q->start = 0;
}

static size_t first_length(const struct wire_queue *q)
{
    uint32_t length;

    memcpy(&length, wire_bytes(q), sizeof length);
    return ntohl(length);
}

size_t wire_room(const struct wire_queue *q)
{
    return sizeof q->bytes - q->len;
}

void wire_add(struct wire_queue *q, const void *data, size_t len)
{
    assert(len <= wire_room(q));
    if (len > sizeof q->bytes - q->start - q->len) {
        memmove(q->bytes, wire_bytes(q), q->len);
        q->start = 0;
    }
    memcpy(q->bytes + q->start + q->len, data, len);
    q->len += len;
}

const uint8_t *wire_first(struct wire_queue *q, size_t *len)
{
    for (;;) {
        const size_t now = q->skip < q->len ? q->skip : q->len;
        wire_remove(q, now);
        q->skip -= now;
        if (q->len < WIRE_LENGTH_BYTES)
            return NULL;
        *len = first_length(q);
        if (*len >= 1 && *len <= FRAME_MAX)
            break;
        q->skip = WIRE_LENGTH_BYTES + *len;
    }
    return q->len - WIRE_LENGTH_BYTES < *len ? NULL : wire_bytes(q) + WIRE_LENGTH_BYTES;
}

void wire_drop(struct wire_queue *q)
{
    wire_remove(q, WIRE_LENGTH_BYTES + first_length(q));
}
