#include "boot/root/module_file.h"

#include <lzma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define MODULE_MAX (256u << 20)
#define STEP       (256u << 10)

static bool has_suffix(const char *path, const char *suffix)
{
    const size_t len = strlen(path), end = strlen(suffix);

    return len > end && !strcmp(path + len - end, suffix);
}

/* Room for a step more. False: there is enough already, or the file would be too large. */
static bool make_room(struct bytes *out)
{
    if (out->len > MODULE_MAX)
        return false;
    bytes_reserve(out, STEP);
    return true;
}

static bool unpack_xz(const struct bytes *in, struct bytes *out)
{
    lzma_stream s = LZMA_STREAM_INIT;
    lzma_ret rc = lzma_stream_decoder(&s, UINT64_MAX, LZMA_CONCATENATED);

    s.next_in = in->data;
    s.avail_in = in->len;
    while (rc == LZMA_OK && make_room(out)) {
        s.next_out = out->data + out->len;
        s.avail_out = STEP;
        rc = lzma_code(&s, LZMA_FINISH);
        out->len += STEP - s.avail_out;
    }
    lzma_end(&s);
    return rc == LZMA_STREAM_END;
}

static bool unpack_zstd(const struct bytes *in, struct bytes *out)
{
    ZSTD_DStream *s = ZSTD_createDStream();
    ZSTD_inBuffer from = {in->data, in->len, 0};
    size_t left = 1;

    while (s && left && !ZSTD_isError(left) && make_room(out)) {
        ZSTD_outBuffer to = {out->data + out->len, STEP, 0};
        left = ZSTD_decompressStream(s, &to, &from);
        out->len += to.pos;
        if (left && !to.pos && from.pos == from.size)
            break; /* it is cut */
    }
    ZSTD_freeDStream(s);
    return left == 0;
}

static bool unpack_gzip(const struct bytes *in, struct bytes *out)
{
    z_stream s = {.next_in = in->data, .avail_in = (uInt)in->len};
    int rc = inflateInit2(&s, 15 + 16);

    while (rc == Z_OK && make_room(out)) {
        s.next_out = out->data + out->len;
        s.avail_out = STEP;
        rc = inflate(&s, Z_NO_FLUSH);
        out->len += STEP - s.avail_out;
    }
    inflateEnd(&s);
    return rc == Z_STREAM_END;
}

int module_file_read(const struct module_directory *directory, const char *path, struct bytes *out,
                     struct err *e)
{
    struct bytes packed = {0};
    bool ok = true;

    *out = (struct bytes){0};
    if (module_directory_read(directory, path, MODULE_MAX, &packed.data, &packed.len, e) < 0)
        return -1;
    if (has_suffix(path, ".xz"))
        ok = unpack_xz(&packed, out);
    else if (has_suffix(path, ".zst"))
        ok = unpack_zstd(&packed, out);
    else if (has_suffix(path, ".gz"))
        ok = unpack_gzip(&packed, out);
    else
        bytes_put(out, packed.data, packed.len);
    free(packed.data);
    if (ok && out->len)
        return 0;
    bytes_free(out);
    return err_set(e, STATUS_ERROR, "the kernel module %s is damaged", path);
}
