#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "recording/format.h"
#include "recording/pack.h"

#define RAW 70000

static const uint32_t versions[] = {RECORDING_OLDEST, RECORDING_ZSTD - 1, RECORDING_ZSTD,
                                    RECORDING_VERSION};

static void fill(uint8_t *raw, unsigned kinds)
{
    uint64_t random = 1;

    for (size_t i = 0; i < RAW; i++)
        raw[i] = (uint8_t)((random_next(&random) >> 24) % kinds);
}

/* Whatever the version, it comes out as it went in; the old ones have no zstd. */
static void test_there_and_back(void **state)
{
    static uint8_t raw[RAW], stored[RAW], again[RAW];
    static const size_t lengths[] = {2, 100, 4096, RAW};

    (void)state;
    fill(raw, 3);
    memset(raw, 'a', 100);
    for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++) {
        struct packer *p = packer_new(versions[v]);
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (enum pack_effort effort = PACK_FAST; effort <= PACK_GOOD; effort++) {
                const size_t len = packer_pack(p, effort, raw, lengths[i], stored);
                assert_true(len < lengths[i]);
                if (!len) { /* of 2 bytes */
                    assert_true(lengths[i] < 100);
                    continue;
                }
                assert_int_equal(stored[0], versions[v] < RECORDING_ZSTD ? 0x78 : 0x28);
                memset(again, 0xee, sizeof again);
                assert_true(unpack(again, lengths[i], stored, len));
                assert_memory_equal(again, raw, lengths[i]);
            }
        packer_free(p);
    }
}

static void test_noise_is_not_packed(void **state)
{
    static uint8_t raw[RAW], stored[RAW];

    (void)state;
    fill(raw, 256);
    for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++) {
        struct packer *p = packer_new(versions[v]);
        assert_int_equal(packer_pack(p, PACK_GOOD, raw, RAW, stored), 0);
        assert_int_equal(packer_pack(p, PACK_FAST, raw, 1, stored), 0);
        packer_free(p);
    }
}

/* What is cut, goes on behind its end, or is of another length, is refused. */
static void test_other_bytes(void **state)
{
    static uint8_t raw[RAW], stored[2 * RAW], again[2 * RAW];

    (void)state;
    fill(raw, 3);
    for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++) {
        struct packer *p = packer_new(versions[v]);
        const size_t len = packer_pack(p, PACK_GOOD, raw, 4096, stored);
        assert_true(unpack(again, 4096, stored, len));
        for (size_t cut = 0; cut < len; cut++)
            assert_false(unpack(again, 4096, stored, cut));
        assert_false(unpack(again, 4095, stored, len));
        assert_false(unpack(again, 4097, stored, len));
        stored[len] = 0;
        assert_false(unpack(again, 4096, stored, len + 1));
        memmove(stored + len, stored, len); /* twice */
        assert_false(unpack(again, 8192, stored, 2 * len));
        packer_free(p);
    }
    static const uint8_t empty_skipped[] = {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
    assert_false(unpack(again, 1, empty_skipped, sizeof empty_skipped));
    assert_false(unpack(again, 1, stored, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_noise_is_not_packed),
        cmocka_unit_test(test_other_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
