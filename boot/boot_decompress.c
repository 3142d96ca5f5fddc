#include <lz4.h>
#include <string.h>

#include "base/bytes.h"
#include "boot/boot_bzimage.h"
#include "boot/unpack.h"

#define LZ4_LEGACY_CHUNK                                                                           \
    (8u << 20) /* a block of the legacy frame format decodes to at most this                       \
                */

/* Each decoder appends to *out; false: the data are bad, or give more than `max` bytes. */
struct decoder {
    const char *name;
    uint8_t magic[6];
    uint8_t magic_len;
    bool (*decode)(const uint8_t *in, size_t len, size_t max, struct bytes *out);
};

/* LZ4 "legacy frame": magic, then blocks of {u32 length, LZ4 block}, without an end mark: until
 * there are `max` bytes. */
static bool decode_lz4(const uint8_t *in, size_t in_len, size_t max, struct bytes *out)
{
    struct cursor c = cursor_of(in + 4, in_len - 4);

    bytes_reserve(out, max);
    while (out->len < max) {
        uint32_t len = cursor_u32(&c);
        const char *block = cursor_take(&c, len);
        size_t room = max - out->len < LZ4_LEGACY_CHUNK ? max - out->len : LZ4_LEGACY_CHUNK;

        if (c.bad || len == 0 || len > INT32_MAX)
            return false;

        int got = LZ4_decompress_safe(block, (char *)out->data + out->len, (int)len, (int)room);

        if (got <= 0)
            return false;
        out->len += (size_t)got;
    }
    return true;
}

static bool decode_plain(const uint8_t *in, size_t in_len, size_t max, struct bytes *out)
{
    bytes_put(out, in, in_len < max ? in_len : max);
    return true;
}

static const struct decoder decoders[] = {
    {"gzip", {0x1f, 0x8b}, 2, unpack_gzip},
    {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, unpack_xz},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, unpack_zstd},
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
        decoder->decode == unpack_gzip || decoder->decode == decode_plain ? len : len - 4;

    if (size == 0 || size > BOOT_VMLINUX_MAX)
        return err_set(e, STATUS_ERROR, "the kernel claims to be %zu MiB; the limit is %zu MiB",
                       size >> 20, BOOT_VMLINUX_MAX >> 20);

    struct bytes unpacked = {0};

    if (!decoder->decode(payload, in_len, size, &unpacked) || !unpacked.len) {
        bytes_free(&unpacked);
        return err_set(e, STATUS_ERROR, "the kernel's %s data are damaged", decoder->name);
    }
    *out = unpacked.data;
    *out_len = unpacked.len;
    return 0;
}
