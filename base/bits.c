#include "base/bits.h"

#include <assert.h>

void bits_put(struct bit_writer *w, uint64_t value, unsigned count)
{
    assert(count <= 64);
    for (unsigned i = 0; i < count; i++) {
        w->last |= (uint8_t)((value >> i & 1) << w->used);
        if (++w->used == 8)
            bits_flush(w);
    }
}

void bits_put_gamma(struct bit_writer *w, uint64_t value)
{
    assert(value);
    const unsigned behind = 63 - (unsigned)__builtin_clzll(value);
    bits_put(w, 0, behind);
    bits_put(w, 1, 1);
    bits_put(w, value, behind);
}

void bits_flush(struct bit_writer *w)
{
    if (w->used)
        bytes_put_u8(w->out, w->last);
    w->last = 0;
    w->used = 0;
}

struct bit_reader bits_of(const void *data, size_t len)
{
    return (struct bit_reader){.in = cursor_of(data, len)};
}

static unsigned get_bit(struct bit_reader *r)
{
    if (!r->left) {
        r->last = cursor_u8(&r->in);
        r->left = 8;
        r->bad |= r->in.bad;
    }
    if (r->bad)
        return 0;
    const unsigned bit = r->last & 1;
    r->last >>= 1;
    r->left--;
    return bit;
}

uint64_t bits_get(struct bit_reader *r, unsigned count)
{
    uint64_t value = 0;

    assert(count <= 64);
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)get_bit(r) << i;
    return r->bad ? 0 : value;
}

uint64_t bits_get_gamma(struct bit_reader *r)
{
    unsigned behind = 0;

    while (!r->bad && !get_bit(r))
        if (++behind == 64)
            r->bad = true;
    const uint64_t value = r->bad ? 0 : bits_get(r, behind);
    return r->bad ? 1 : value | 1ull << behind;
}

bool bits_at_end(const struct bit_reader *r)
{
    return !r->bad && cursor_left(&r->in) == 0 && r->last == 0;
}
