#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bytes_reserve(struct bytes *b, size_t extra)
{
    size_t need = b->len + extra;

    if (need <= b->cap)
        return;
    size_t cap = b->cap ? b->cap * 2 : 256;
    if (cap < need)
        cap = need;
    uint8_t *data = realloc(b->data, cap);
    if (!data) {
        fprintf(stderr, "dittovm: out of memory\n");
        abort();
    }
    b->data = data;
    b->cap = cap;
}

void bytes_put(struct bytes *b, const void *data, size_t len)
{
    if (!len)
        return;
    bytes_reserve(b, len);
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void bytes_put_u8(struct bytes *b, uint8_t v)
{
    bytes_reserve(b, 1);
    b->data[b->len++] = v;
}

static void put_le(struct bytes *b, uint64_t v, unsigned size)
{
    bytes_reserve(b, size);
    for (unsigned i = 0; i < size; i++)
        b->data[b->len++] = (uint8_t)(v >> (8 * i));
}

void bytes_put_u16(struct bytes *b, uint16_t v)
{
    put_le(b, v, 2);
}

void bytes_put_u32(struct bytes *b, uint32_t v)
{
    put_le(b, v, 4);
}

void bytes_put_u64(struct bytes *b, uint64_t v)
{
    put_le(b, v, 8);
}

void bytes_put_varint(struct bytes *b, uint64_t v)
{
    bytes_reserve(b, 10);
    while (v >= 0x80) {
        b->data[b->len++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    b->data[b->len++] = (uint8_t)v;
}

void bytes_put_svarint(struct bytes *b, int64_t v)
{
    bytes_put_varint(b, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

void bytes_clear(struct bytes *b)
{
    b->len = 0;
}

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

struct cursor cursor_of(const void *data, size_t len)
{
    return (struct cursor){.p = data, .end = (const uint8_t *)data + len};
}

size_t cursor_left(const struct cursor *c)
{
    return (size_t)(c->end - c->p);
}

const void *cursor_take(struct cursor *c, size_t len)
{
    if (c->bad || cursor_left(c) < len) {
        c->bad = true;
        return NULL;
    }
    const void *at = c->p;
    c->p += len;
    return at;
}

void cursor_get(struct cursor *c, void *out, size_t len)
{
    const void *at = cursor_take(c, len);

    if (at)
        memcpy(out, at, len);
    else
        memset(out, 0, len);
}

static uint64_t get_le(struct cursor *c, unsigned size)
{
    const uint8_t *at = cursor_take(c, size);
    uint64_t v = 0;

    for (unsigned i = 0; at && i < size; i++)
        v |= (uint64_t)at[i] << (8 * i);
    return v;
}

uint8_t cursor_u8(struct cursor *c)
{
    return (uint8_t)get_le(c, 1);
}

uint16_t cursor_u16(struct cursor *c)
{
    return (uint16_t)get_le(c, 2);
}

uint32_t cursor_u32(struct cursor *c)
{
    return (uint32_t)get_le(c, 4);
}

uint64_t cursor_u64(struct cursor *c)
{
    return get_le(c, 8);
}

uint64_t cursor_varint(struct cursor *c)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = cursor_u8(c);
        if (c->bad)
            return 0;
        if (shift == 63 && byte > 1)
            break; /* more than 64 bits */
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
    c->bad = true;
    return 0;
}

int64_t cursor_svarint(struct cursor *c)
{
    uint64_t v = cursor_varint(c);

    return (int64_t)((v >> 1) ^ (0 - (v & 1)));
}
