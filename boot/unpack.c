#include "boot/unpack.h"

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#define XZ_MEMORY_LIMIT ((uint64_t)256 << 20)
#define STEP            ((size_t)256 << 10)

/* How much may be put behind what there is; there is room for it. One byte more than `max`, so that
 * too much is told from what just fits. 0: there is too much. */
static size_t make_room(struct bytes *out, size_t max)
{
    const size_t left = out->len > max ? 0 : max - out->len + 1;
    const size_t room = left < STEP ? left : STEP;

    bytes_reserve(out, room);
    return room;
}

bool unpack_gzip(const uint8_t *in, size_t len, size_t max, struct bytes *out)
{
    z_stream s = {.next_in = (Bytef *)(uintptr_t)in, .avail_in = (uInt)len};
    int rc = inflateInit2(&s, 15 + 16);
    size_t room;

    while (rc == Z_OK && (room = make_room(out, max))) {
        s.next_out = out->data + out->len;
        s.avail_out = (uInt)room;
        rc = inflate(&s, Z_NO_FLUSH);
        out->len += room - s.avail_out;
    }
    inflateEnd(&s);
    return rc == Z_STREAM_END && out->len <= max;
}

bool unpack_xz(const uint8_t *in, size_t len, size_t max, struct bytes *out)
{
    lzma_stream s = LZMA_STREAM_INIT;
    lzma_ret rc = lzma_stream_decoder(&s, XZ_MEMORY_LIMIT, 0);
    size_t room;

    s.next_in = in;
    s.avail_in = len;
    while (rc == LZMA_OK && (room = make_room(out, max))) {
        s.next_out = out->data + out->len;
        s.avail_out = room;
        rc = lzma_code(&s, LZMA_FINISH);
        out->len += room - s.avail_out;
    }
    lzma_end(&s);
    return rc == LZMA_STREAM_END && out->len <= max;
}

bool unpack_zstd(const uint8_t *in, size_t len, size_t max, struct bytes *out)
{
    ZSTD_DStream *s = ZSTD_createDStream();
    ZSTD_inBuffer from = {in, len, 0};
    size_t left = 1, room;

    while (s && left && !ZSTD_isError(left) && (room = make_room(out, max))) {
        ZSTD_outBuffer to = {out->data + out->len, room, 0};
        left = ZSTD_decompressStream(s, &to, &from);
        out->len += to.pos;
        if (left && !to.pos && from.pos == from.size)
            break; /* it is cut */
    }
    ZSTD_freeDStream(s);
    return left == 0 && out->len <= max;
}
