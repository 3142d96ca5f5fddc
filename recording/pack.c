#include "recording/pack.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "recording/format.h"

static const int level[] = {[PACK_FAST] = 1, [PACK_GOOD] = 6}; /* of either */

struct packer {
    ZSTD_CCtx *zstd; /* NULL: zlib is wanted */
};

struct packer *packer_new(uint32_t recording_version)
{
    struct packer *p = calloc(1, sizeof *p);

    if (!p || recording_version < RECORDING_ZSTD)
        return p;
    p->zstd = ZSTD_createCCtx();
    if (!p->zstd) {
        free(p);
        return NULL;
    }
    return p;
}

void packer_free(struct packer *p)
{
    if (p)
        ZSTD_freeCCtx(p->zstd);
    free(p);
}

size_t packer_pack(struct packer *p, enum pack_effort effort, const uint8_t *raw, size_t raw_len,
                   uint8_t *out)
{
    /* No more room than makes it worth while. */
    const size_t room = raw_len - 1;

    if (!room)
        return 0;
    if (p->zstd) {
        const size_t len = ZSTD_compressCCtx(p->zstd, out, room, raw, raw_len, level[effort]);
        return ZSTD_isError(len) ? 0 : len;
    }
    uLongf len = room;
    return compress2(out, &len, raw, raw_len, level[effort]) == Z_OK ? len : 0;
}

/* A frame begins with its magic number, which as the head of a zlib stream has a wrong check. */
static bool is_zstd(const uint8_t *stored, size_t stored_len)
{
    static const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};

    return stored_len >= sizeof magic && memcmp(stored, magic, sizeof magic) == 0;
}

bool unpack(uint8_t *raw, size_t raw_len, const uint8_t *stored, size_t stored_len)
{
    if (is_zstd(stored, stored_len))
        return ZSTD_findFrameCompressedSize(stored, stored_len) == stored_len &&
               ZSTD_decompress(raw, raw_len, stored, stored_len) == raw_len;
    uLongf len = raw_len;
    uLong used = stored_len;
    return uncompress2(raw, &len, stored, &used) == Z_OK && len == raw_len && used == stored_len;
}
