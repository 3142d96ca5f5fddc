/* Accesses to shared memory (recording/order/access.h): the codec, and the stream of a recording.
 */
#include "tests/unit/recording/recording_content.h"

#include "recorder/recorder.h"
#include "recording/order/access_text.h"
#include "recording/order/accesses.h"
#include "recording/streams.h"
#include "tests/unit/recording/order/access_pattern.h"

static const struct access_pattern pattern = {
    .vcpus = 5, .accesses = 500, .objects = 40, .loads = 500, .own = 100, .again = 300};

static void assert_same(const struct access *a, const struct access *b)
{
    assert_int_equal(a->vcpu, b->vcpu);
    assert_int_equal(a->store, b->store);
    assert_true(a->object == b->object);
    assert_true(a->point == b->point);
}

static void test_round_trip(void **state)
{
    static const struct access odd[] = {
        {.vcpu = 0, .object = UINT64_MAX, .point = 0, .store = true},
        {.vcpu = 7, .object = 0, .point = UINT64_MAX},
        {.vcpu = 7, .object = 1ull << 63, .point = UINT64_MAX, .store = true},
        {.vcpu = 0, .object = 0, .point = UINT64_MAX},
    };
    struct access_codec encoder = {0}, decoder = {0};
    struct bytes b = {0};
    struct access got;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        const size_t before = b.len;
        access_encode(&b, &encoder, &odd[i]);
        assert_in_range(b.len - before, 3, ACCESS_MAX_BYTES);
    }
    struct cursor c = cursor_of(b.data, b.len);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(access_decode(&c, &decoder, &got));
        assert_same(&got, &odd[i]);
    }
    assert_int_equal(cursor_left(&c), 0);
    assert_false(access_decode(&c, &decoder, &got));
    bytes_free(&b);
}

static void test_malformed(void **state)
{
    static const struct {
        uint8_t bytes[24];
        size_t len;
    } bad[] = {
        {{0x10, 0, 0}, 3}, /* no such flag */
        {{0xff, 0, 0}, 3},
        {{0}, 2}, /* cut off */
        {{0, 0x80}, 2},
        {{0, 0, 0x80}, 3},
        {{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 12}, /* 65 bits */
    };
    struct access got;

    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct access_codec codec = {0};
        struct cursor c = cursor_of(bad[i].bytes, bad[i].len);
        assert_false(access_decode(&c, &codec, &got));
    }
    /* A point that would fall. */
    static const uint8_t more[] = {0, 0, 1};
    struct access_codec codec = {.point = {UINT64_MAX}};
    struct cursor c = cursor_of(more, sizeof more);
    assert_false(access_decode(&c, &codec, &got));
}

static const char *recording_of(const void *accesses, size_t len)
{
    struct err e;
    struct recording_writer *w = begin();

    assert_int_equal(writer_put(w, STREAM_SYNCS, "x", 1), 0);
    if (len)
        assert_int_equal(writer_put(w, STREAM_ACCESSES, accesses, len), 0);
    assert_int_equal(writer_epoch(w, &e), 0);
    assert_int_equal(writer_finish(w, 0, "test", &e), 0);
    return path;
}

static int load(struct access_list *list, const char *file, unsigned vcpus, struct err *e)
{
    struct recording *r = recording_open(file, e);

    assert_non_null(r);
    const int rc = accesses_load(list, r, vcpus, e);
    recording_close(r);
    return rc;
}

/* What a recorder is told is what is in the recording. */
static void test_recorded(void **state)
{
    struct access_list list = {0}, got;
    struct err e = {0};
    struct recorder *r = recorder_create(path, true, META, &e);

    (void)state;
    assert_non_null(r);
    pattern_make(&pattern, 1, &list);
    recorder_access(NULL, &list.at[0]);
    for (size_t i = 0; i < list.count; i++)
        recorder_access(r, &list.at[i]);
    assert_int_equal(recorder_finish(r, END_STOPPED, NULL, &e), 0);
    assert_int_equal(load(&got, path, pattern.vcpus, &e), 0);
    assert_int_equal(got.count, 2500);
    assert_int_equal(got.vcpus, pattern.vcpus);
    for (size_t i = 0; i < list.count; i++)
        assert_same(&got.at[i], &list.at[i]);
    access_list_free(&got);
    /* A machine with fewer vCPUs cannot have had them all. */
    assert_int_equal(load(&got, path, pattern.vcpus - 1, &e), -1);
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    access_list_free(&list);
}

static void test_none(void **state)
{
    struct access_list list;
    struct err e = {0};

    (void)state;
    assert_int_equal(load(&list, recording_of(NULL, 0), 1, &e), 0);
    assert_int_equal(list.count, 0);
    access_list_free(&list);
}

/* Whatever the stream holds: accesses of these vCPUs, or an error. */
static void test_damaged(void **state)
{
    struct access_list list = {0};
    struct access_codec codec = {0};
    struct bytes stream = {0};
    uint64_t seed = RANDOM_SEED;
    unsigned refused = 0;

    (void)state;
    pattern_make(&pattern, 2, &list);
    for (size_t i = 0; i < list.count; i++)
        access_encode(&stream, &codec, &list.at[i]);
    for (unsigned round = 0; round < 200; round++) {
        struct access_list got;
        struct bytes copy = {0};
        struct err e = {0};

        bytes_put(&copy, stream.data,
                  round < 100 ? stream.len : 1 + random_next(&seed) % stream.len);
        if (round < 100)
            copy.data[random_next(&seed) % copy.len] ^= (uint8_t)(1 << random_next(&seed) % 8);
        if (load(&got, recording_of(copy.data, copy.len), pattern.vcpus, &e) < 0) {
            refused++;
            assert_int_equal(e.status, STATUS_BAD_RECORDING);
            assert_non_null(strstr(e.text, "damaged"));
        } else {
            for (size_t i = 0; i < got.count; i++)
                assert_in_range(got.at[i].vcpu, 0, pattern.vcpus - 1);
        }
        access_list_free(&got);
        bytes_free(&copy);
    }
    assert_in_range(refused, 50, 199);
    access_list_free(&list);
    bytes_free(&stream);
}

/* ---- text ---- */

static int read_text(struct access_list *list, const char *text, size_t len, struct err *e)
{
    spill(other, text, len);
    FILE *in = fopen(other, "r");
    assert_non_null(in);
    const int rc = access_text_read(list, in, "trace", e);
    fclose(in);
    return rc;
}

static void test_text(void **state)
{
    static const char text[] = "# a trace\n"
                               "0 store 0xFFFFFFFFFFFFFFFF\n"
                               "\n"
                               "  2\tload   18446744073709551615 # the same\r\n"
                               "2 store 010\n"
                               "2 load 3 7\n"
                               "2 load 4 7\n"
                               "2 load 5\n";
    static const struct access wanted[] = {
        {.vcpu = 0, .store = true, .object = UINT64_MAX},
        {.vcpu = 2, .object = UINT64_MAX},
        {.vcpu = 2, .store = true, .object = 10, .point = 1},
        {.vcpu = 2, .object = 3, .point = 7},
        {.vcpu = 2, .object = 4, .point = 7},
        {.vcpu = 2, .object = 5, .point = 8},
    };
    struct access_list list;
    struct err e;

    (void)state;
    assert_int_equal(read_text(&list, text, sizeof text - 1, &e), 0);
    assert_int_equal(list.count, 6);
    assert_int_equal(list.vcpus, 3);
    for (unsigned i = 0; i < 6; i++)
        assert_same(&list.at[i], &wanted[i]);
    access_list_free(&list);
}

static void test_text_round_trip(void **state)
{
    struct access_list list = {0}, got;
    struct err e;
    FILE *out = fopen(other, "w+");

    (void)state;
    assert_non_null(out);
    pattern_make(&pattern, 3, &list);
    for (size_t i = 0; i < list.count; i++)
        access_text_write(out, &list.at[i]);
    rewind(out);
    assert_int_equal(access_text_read(&got, out, "trace", &e), 0);
    assert_int_equal(got.count, list.count);
    for (size_t i = 0; i < list.count; i++)
        assert_same(&got.at[i], &list.at[i]);
    fclose(out);
    access_list_free(&list);
    access_list_free(&got);
}

static void test_text_malformed(void **state)
{
    static const char *const bad[] = {
        "0 store\n",
        "0 store 1 2 3\n",
        "0 store 1 x\n",
        "1 store 1 4\n",
        "8 store 1\n",
        "-1 store 1\n",
        "x store 1\n",
        "0 stores 1\n",
        "0 STORE 1\n",
        "0 store x\n",
        "0 store 0x\n",
        "0 store -1\n",
        "0 store 0x-1\n",
        "0 store 18446744073709551616\n",
        "0 store 0x10000000000000000\n",
        "0 store 1                                                                              "
        "                                                  \n",
    };
    struct access_list list;
    struct err e;

    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        const int len = snprintf(text, sizeof text, "1 load 7 5\n%s", bad[i]);
        assert_int_equal(read_text(&list, text, (size_t)len, &e), -1);
        assert_int_equal(e.status, STATUS_ERROR);
        assert_non_null(strstr(e.text, "trace, line 2: "));
        assert_null(list.at);
    }
    assert_int_equal(read_text(&list, "0 store 1\0\n", 11, &e), -1);
    assert_int_equal(read_text(&list, "# none\n", 7, &e), -1);
    assert_non_null(strstr(e.text, "no accesses"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_recorded),        cmocka_unit_test(test_none),
        cmocka_unit_test(test_damaged),         cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_round_trip), cmocka_unit_test(test_text_malformed),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
