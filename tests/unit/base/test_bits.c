/* base/bits.h: what is written is read, and a reader of anything else comes to an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/bits.h"
#include "tests/unit/random.h"

static void test_layout(void **state)
{
    struct bytes b = {0};
    struct bit_writer w = {.out = &b};

    (void)state;
    bits_put(&w, 1, 1);
    bits_put(&w, 0, 2);
    bits_put_gamma(&w, 1);  /* 1 */
    bits_put_gamma(&w, 2);  /* 0 1 0 */
    bits_put_gamma(&w, 3);  /* 0 1 1 */
    bits_put_gamma(&w, 11); /* 0 0 0 1, then 1 1 0 */
    assert_int_equal(b.len, 2);
    bits_flush(&w);
    bits_flush(&w);
    /* In order: 1001 0100 / 1100 0111 / 0 and zeroes; the first bit is the lowest. */
    assert_int_equal(b.len, 3);
    assert_int_equal(b.data[0], 0x29);
    assert_int_equal(b.data[1], 0xe3);
    assert_int_equal(b.data[2], 0x00);
    bytes_free(&b);
}

static void test_round_trip(void **state)
{
    uint64_t seed = RANDOM_SEED, numbers[2000];
    struct bytes b = {0};
    struct bit_writer w = {.out = &b};

    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        numbers[i] = random_next(&seed) >> random_next(&seed) % 64;
        numbers[i] += numbers[i] == 0;
        bits_put_gamma(&w, numbers[i]);
        bits_put(&w, numbers[i], i % 65);
    }
    bits_flush(&w);
    struct bit_reader r = bits_of(b.data, b.len);
    for (unsigned i = 0; i < 2000; i++) {
        const unsigned width = i % 65;
        assert_false(bits_at_end(&r));
        assert_true(bits_get_gamma(&r) == numbers[i]);
        assert_true(bits_get(&r, width) ==
                    (width == 64 ? numbers[i] : numbers[i] & ((1ull << width) - 1)));
    }
    assert_true(bits_at_end(&r));
    assert_false(r.bad);
    bytes_free(&b);
}

/* Only zeroes in the last byte are the end. */
static void test_end(void **state)
{
    static const uint8_t ends[] = {0x01}, goes_on[] = {0x11}, one_more[] = {0x01, 0x00};
    struct bit_reader r = bits_of(ends, 1);

    (void)state;
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_true(bits_at_end(&r));
    r = bits_of(goes_on, 1);
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_false(bits_at_end(&r));
    r = bits_of(one_more, 2);
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_false(bits_at_end(&r));
    r = bits_of(NULL, 0);
    assert_true(bits_at_end(&r));
}

static void test_hostile(void **state)
{
    static const uint8_t zeroes[9] = {0}, high[17] = {[7] = 0x80};
    struct bit_reader r = bits_of(zeroes, sizeof zeroes);

    (void)state;
    /* 64 zeroes are more than any number has. */
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_true(r.bad);
    assert_int_equal(bits_get(&r, 64), 0);
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_false(bits_at_end(&r));
    /* 63 are 2^63, if the rest is there. */
    r = bits_of(high, 16);
    assert_true(bits_get_gamma(&r) == 1ull << 63);
    assert_false(r.bad);
    r = bits_of(high, 15);
    assert_int_equal(bits_get_gamma(&r), 1);
    assert_true(r.bad);
    r = bits_of(NULL, 0);
    assert_int_equal(bits_get(&r, 1), 0);
    assert_true(r.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
