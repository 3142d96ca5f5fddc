#include <lz4.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/bytes.h"
#include "boot/boot_bzimage.h"

#define XZ_MEMORY_LIMIT ((uint64_t)256 << 20)
#define LZ4_LEGACY_CHUNK                                                                           \
    (8u << 20) /* a block of the legacy frame format decodes to at most this                       \
                */

/* Each decoder fills out[0, size) and returns how much it produced, or 0 when the data are bad. */
struct decoder {
    const char *name;
    uint8_t magic[6];
    uint8_t magic_len;
    size_t (*decode)(const uint8_t *in, size_t in_len, uint8_t *out, size_t size);
};

static size_t decode_gzip(const uint8_t *in, size_t in_len, uint8_t *out, size_t size)
{
    z_stream z = {.next_in = (Bytef *)in, .avail_in = (uInt)in_len};

    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return 0;
    z.next_out = out;
    z.avail_out = (uInt)size;

    int rc = inflate(&z, Z_FINISH);
    size_t produced = z.total_out;

    inflateEnd(&z);
    return rc == Z_STREAM_END ? produced : 0;
}

static size_t decode_xz(const uint8_t *in, size_t in_len, uint8_t *out, size_t size)
{
    uint64_t limit = XZ_MEMORY_LIMIT;
    size_t in_pos = 0, out_pos = 0;

    if (lzma_stream_buffer_decode(&limit, 0, NULL, in, &in_pos, in_len, out, &out_pos, size) !=
        LZMA_OK)
        return 0;
    return out_pos;
}

static size_t decode_zstd(const uint8_t *in, size_t in_len, uint8_t *out, size_t size)
{
    size_t frame = ZSTD_findFrameCompressedSize(in, in_len);

    if (ZSTD_isError(frame))
        return 0;

    size_t produced = ZSTD_decompress(out, size, in, frame);

    return ZSTD_isError(produced) ? 0 : produced;
}

/* LZ4 "legacy frame": magic, then blocks of {u32 length, LZ4 block}, without an end mark. */
static size_t decode_lz4(const uint8_t *in, size_t in_len, uint8_t *out, size_t size)
{
    struct cursor c = cursor_of(in + 4, in_len - 4);
    size_t produced = 0;

    while (produced < size) {
        uint32_t len = cursor_u32(&c);
        const char *block = cursor_take(&c, len);
        size_t room = size - produced < LZ4_LEGACY_CHUNK ? size - produced : LZ4_LEGACY_CHUNK;

        if (c.bad || len == 0 || len > INT32_MAX)
            return 0;

        int got = LZ4_decompress_safe(block, (char *)out + produced, (int)len, (int)room);

        if (got <= 0)
            return 0;
        produced += (size_t)got;
    }
    return produced;
}

static size_t decode_plain(const uint8_t *in, size_t in_len, uint8_t *out, size_t size)
{
    size_t n = in_len < size ? in_len : size;

    memcpy(out, in, n);
    return n;
}

static const struct decoder decoders[] = {
    {"gzip", {0x1f, 0x8b}, 2, decode_gzip},
    {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, decode_xz},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, decode_zstd},
    {"lz4", {0x02, 0x21, 0x4c, 0x18}, 4, decode_lz4},
    {"uncompressed", {0x7f, 'E', 'L', 'F'}, 4, decode_plain},
    {"bzip2", {'B', 'Z', 'h'}, 3, NULL},
    {"lzma", {0x5d, 0, 0}, 3, NULL},
    {"lzo", {0x89, 'L', 'Z', 'O'}, 4, NULL},
};

static const struct decoder *decoder_of(const uint8_t *payload, size_t len)
{
    for (size_t i = 0; i < sizeof(decoders) / sizeof(*decoders); i++)
        if (len >= decoders[i].magic_len &&
            memcmp(payload, decoders[i].magic, decoders[i].magic_len) == 0)
            return &decoders[i];
    return NULL;
}

int boot_decompress(const uint8_t *payload, size_t len, uint8_t **out, size_t *out_len,
                    struct err *e)
{
    const struct decoder *decoder = decoder_of(payload, len);

    if (len < BOOT_PAYLOAD_MIN)
        return err_set(e, STATUS_ERROR, "a compressed kernel of %zu bytes is too short", len);
    if (!decoder || !decoder->decode)
        return err_set(e, STATUS_ERROR,
                       "the kernel is compressed with %s, which is not supported; give a kernel "
                       "compressed with gzip, xz, zstd or lz4, or its vmlinux",
                       decoder ? decoder->name : "an unknown format");

    /* gzip ends with its size anyway; the kernel's build appends the same to the other formats. */
    struct cursor tail = cursor_of(payload + len - 4, 4);
    size_t size = decoder->decode == decode_plain ? len : cursor_u32(&tail);
    size_t in_len =
        decoder->decode == decode_gzip || decoder->decode == decode_plain ? len : len - 4;

    if (size == 0 || size > BOOT_VMLINUX_MAX)
        return err_set(e, STATUS_ERROR, "the kernel claims to be %zu MiB; the limit is %zu MiB",
                       size >> 20, BOOT_VMLINUX_MAX >> 20);

    uint8_t *buffer = malloc(size);

    if (!buffer)
        return err_set(e, STATUS_ERROR, "out of memory for a kernel of %zu MiB", size >> 20);

    size_t produced = decoder->decode(payload, in_len, buffer, size);

    if (produced == 0) {
        free(buffer);
        return err_set(e, STATUS_ERROR, "the kernel's %s data are damaged", decoder->name);
    }
    *out = buffer;
    *out_len = produced;
    return 0;
}
