/* boot/unpack.c: what is compressed is unpacked, up to a limit of its size and of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lzma.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "boot/unpack.h"

static uint8_t plain[700000], packed[800000];

static size_t pack_gzip(void)
{
    z_stream s = {
        .next_in = plain, .avail_in = sizeof plain, .next_out = packed, .avail_out = sizeof packed};

    assert_int_equal(deflateInit2(&s, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    deflateEnd(&s);
    return s.total_out;
}

static size_t pack_xz(void)
{
    lzma_stream s = LZMA_STREAM_INIT;

    assert_int_equal(lzma_easy_encoder(&s, 0, LZMA_CHECK_CRC32), LZMA_OK);
    s.next_in = plain;
    s.avail_in = sizeof plain;
    s.next_out = packed;
    s.avail_out = sizeof packed;
    assert_int_equal(lzma_code(&s, LZMA_FINISH), LZMA_STREAM_END);
    lzma_end(&s);
    return s.total_out;
}

static size_t pack_zstd(void)
{
    return ZSTD_compress(packed, sizeof packed, plain, sizeof plain, 1);
}

static const struct {
    size_t (*pack)(void);
    bool (*unpack)(const uint8_t *in, size_t len, size_t max, struct bytes *out);
} formats[] = {{pack_gzip, unpack_gzip}, {pack_xz, unpack_xz}, {pack_zstd, unpack_zstd}};

static bool unpacks(unsigned format, size_t len, size_t max)
{
    struct bytes out = {0};
    const bool ok = formats[format].unpack(packed, len, max, &out);

    assert_true(out.len <= max + 1);
    if (ok) {
        assert_int_equal(out.len, sizeof plain);
        assert_memory_equal(out.data, plain, sizeof plain);
    }
    bytes_free(&out);
    return ok;
}

static void test_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * i >> 5);
    for (unsigned format = 0; format < 3; format++) {
        const size_t len = formats[format].pack();
        assert_true(unpacks(format, len, sizeof plain));
        assert_true(unpacks(format, len, 256u << 20));
        assert_true(unpacks(format, len + 4, sizeof plain)); /* there is something behind it */
        assert_false(unpacks(format, len, sizeof plain - 1));
        assert_false(unpacks(format, len, 0));
        assert_false(unpacks(format, len - 1, sizeof plain));
        assert_false(unpacks(format, 3, sizeof plain));
        assert_false(unpacks(format, 0, sizeof plain));
    }
}

/* A header that wants a dictionary of 1 GiB (the .xz format, 3.1 and 5.3.1). */
static void test_memory(void **state)
{
    const size_t len = pack_xz();

    (void)state;
    assert_memory_equal(packed + 12, "\x02\x00\x21\x01", 4);
    packed[16] = 36;
    const uint32_t sum = lzma_crc32(packed + 12, 8, 0);
    memcpy(packed + 20, &sum, sizeof sum);
    assert_false(unpacks(1, len, sizeof plain));
    packed[16] = 30; /* 128 MiB */
    const uint32_t fits = lzma_crc32(packed + 12, 8, 0);
    memcpy(packed + 20, &fits, sizeof fits);
    assert_true(unpacks(1, len, sizeof plain));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
