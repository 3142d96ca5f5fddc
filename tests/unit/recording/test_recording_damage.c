/*
 * The recording file when it was cut, damaged or made by an attacker.
 */
#include "tests/unit/random.h"
#include "tests/unit/recording/recording_content.h"

static void test_cut_anywhere(void **state)
{
    enum { EPOCHS = 5 };
    struct err e = {0};
    uint64_t before = 0;

    (void)state;
    record(EPOCHS, 1);
    struct bytes whole = slurp(path);
    for (size_t len = 0; len <= whole.len; len++) {
        uint64_t epochs = 0;
        bool complete = false;
        spill(other, whole.data, len);
        if (check(other, 1, &epochs, &complete, &e)) {
            assert_int_equal(before, 0);
            if (!strstr(e.text, "nothing to replay"))
                fail_msg("cut at %zu: %s", len, e.text);
        }
        assert_true(epochs >= before && epochs <= before + 1);
        assert_int_equal(complete, len == whole.len);
        before = epochs;
        if (len < whole.len) { /* what a crash of the host may leave instead */
            uint8_t zeroes[200] = {0};
            uint64_t again = 0;
            int fd = open(other, O_WRONLY | O_APPEND);
            assert_int_equal(write(fd, zeroes, sizeof zeroes), sizeof zeroes);
            close(fd);
            check(other, 1, &again, &complete, &e);
            assert_true(again <= epochs);
            /* END ends in zeroes, which may be those: what follows it does not count. */
            assert_true(!complete || len > whole.len - END_REASON_BYTES);
        }
    }
    assert_int_equal(before, EPOCHS);
    bytes_free(&whole);
}

/* Flip bits one by one; `tail` is where the last block begins. */
static void flip_bits(struct bytes *file, size_t tail, uint64_t all_epochs, bool has_end)
{
    struct err e = {0};
    unsigned refused = 0;

    spill(other, file->data, file->len);
    int fd = open(other, O_WRONLY);
    for (unsigned i = 0; i < rounds(1500); i++) {
        size_t bit = (size_t)rand() % (file->len * 8);
        uint8_t byte = file->data[bit / 8] ^ (uint8_t)(1 << bit % 8);
        uint64_t epochs;
        bool complete;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        if (check(other, 1, &epochs, &complete, &e)) {
            assert_int_equal(e.status, STATUS_BAD_RECORDING);
            refused++;
        } else if (bit / 8 < tail) {
            fail_msg("a flip at %zu was not seen", bit / 8);
        } else {
            assert_false(complete);
            assert_int_equal(epochs, has_end ? all_epochs : all_epochs - 1);
        }
        assert_int_equal(pwrite(fd, &file->data[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    close(fd);
    assert_true(refused > rounds(1500) * 2 / 3);
}

static void test_bit_flips(void **state)
{
    (void)state;
    srand(2);
    record(12, 1);
    struct bytes whole = slurp(path);
    flip_bits(&whole, last_block(&whole), 12, true);

    /* The same file without INDEX and END. */
    struct end_record end;
    end_record_decode(&end, whole.data + whole.len - END_RAW_BYTES);
    whole.len = end.index_offset;
    flip_bits(&whole, last_block(&whole), 12, false);
    bytes_free(&whole);
}

static void set_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

/* Damage that keeps all CRCs right, as an attacker's would: nothing may crash or hang. */
static void test_hostile(void **state)
{
    struct err e = {0};
    unsigned refused = 0;

    (void)state;
    srand(3);
    record(6, 1);
    struct bytes whole = slurp(path), copy = {0};
    for (unsigned i = 0; i < rounds(1500); i++) {
        bytes_clear(&copy);
        bytes_put(&copy, whole.data, whole.len);
        size_t at = FILE_HEADER_BYTES;
        unsigned target = (unsigned)rand() % 40, n = 0;
        struct block_header h;
        while (block_header_decode(&h, copy.data + at) &&
               at + BLOCK_HEADER_BYTES + h.stored_len < copy.len && n++ < target)
            at += BLOCK_HEADER_BYTES + h.stored_len;
        if (rand() % 2) {
            copy.data[at + (size_t)rand() % 16] = rand() % 3 ? (uint8_t)rand() : 0xff;
        } else {
            for (int k = rand() % 4; k >= 0; k--)
                copy.data[at + BLOCK_HEADER_BYTES + (size_t)rand() % h.stored_len] =
                    (uint8_t)rand();
            set_u32(copy.data + at + 16,
                    crc32_of(copy.data + at + BLOCK_HEADER_BYTES, h.stored_len));
        }
        set_u32(copy.data + at + 20, crc32_of(copy.data + at, 20));
        spill(other, copy.data, copy.len);

        struct recording *r = recording_open(other, &e);
        if (!r) {
            refused++;
            continue;
        }
        uint8_t buf[300];
        refused += recording_verify_all(r, &e) != 0;
        for (unsigned k = 0; k < STREAM_COUNT; k++) {
            struct stream_reader *s = stream_open(r, k, &e);
            while (stream_left(s) && !stream_read(s, buf, stream_left(s) < 300 ? 1 : 300))
                continue;
            stream_close(s);
        }
        struct chunk_source *c = chunk_source_open(r, &e);
        for (uint64_t id = 0; id <= recording_chunks(r) + 1 && id < 100; id++) {
            uint8_t page[CHUNK_MAX_BYTES];
            size_t len;
            chunk_read(c, id, page, &len, &e);
        }
        chunk_source_close(c);
        recording_close(r);
    }
    assert_true(refused > rounds(1500) * 2 / 3);
    bytes_free(&whole);
    bytes_free(&copy);
}

/* A block that is gone, with and without its traces wiped out. */
static void test_missing_block(void **state)
{
    struct end_record end;

    (void)state;
    record(6, 1);
    struct bytes whole = slurp(path), copy = {0};
    end_record_decode(&end, whole.data + whole.len - END_RAW_BYTES);
    size_t at = FILE_HEADER_BYTES, cut = 0, cut_len = 0;
    struct block_header h;
    while (at < end.index_offset) { /* some STREAM block in the middle */
        assert_true(block_header_decode(&h, whole.data + at));
        if (h.type == BLOCK_STREAM && h.ordinal > 10 && !cut) {
            cut = at;
            cut_len = BLOCK_HEADER_BYTES + h.stored_len;
        }
        at += BLOCK_HEADER_BYTES + h.stored_len;
    }
    assert_true(cut);
    bytes_put(&copy, whole.data, cut);
    bytes_put(&copy, whole.data + cut + cut_len, end.index_offset - cut - cut_len);
    spill(other, copy.data, copy.len);
    expect_refused(other, "missing or out of order");

    for (at = cut; at < copy.len; at += BLOCK_HEADER_BYTES + h.stored_len) {
        assert_true(block_header_decode(&h, copy.data + at));
        h.ordinal--;
        block_header_encode(copy.data + at, &h);
    }
    spill(other, copy.data, copy.len);
    expect_refused(other, "the totals do not add up");

    /* Something behind the end that is no addition. */
    bytes_put(&whole, "more than the header of a block", 31);
    spill(other, whole.data, whole.len);
    expect_refused(other, "checksum of a block header");
    bytes_free(&whole);
    bytes_free(&copy);
}

/* End marks that are none, one behind another, and something torn: the first one is damage. They
 * are not tried from the last one on, each with a walk of the file of its own. */
static void test_many_ends(void **state)
{
    uint8_t block[BLOCK_HEADER_BYTES + END_RAW_BYTES] = {0};
    struct block_header h;

    (void)state;
    record(2, 1);
    struct bytes file = slurp(path);
    struct end_record end;
    end_record_decode(&end, file.data + file.len - END_RAW_BYTES);
    file.len = end.index_offset;
    h = (struct block_header){
        .type = BLOCK_END,
        .raw_len = END_RAW_BYTES,
        .stored_len = END_RAW_BYTES,
        .ordinal = end.blocks,
    };
    for (unsigned i = 0; i < 3000; i++, h.ordinal++) {
        block_header_encode(block, &h);
        bytes_put(&file, block, sizeof block);
    }
    bytes_put(&file, "torn", 4);
    spill(other, file.data, file.len);
    expect_refused(other, "contents of an end mark");
    bytes_free(&file);
}

/* Checksums that are right, of an END that belongs to another recording. */
static void test_digest(void **state)
{
    struct err e = {0};

    (void)state;
    record(3, 1);
    struct bytes whole = slurp(path);
    uint8_t *end = whole.data + last_block(&whole);
    end[BLOCK_HEADER_BYTES + 40] ^= 1;
    set_u32(end + 16, crc32_of(end + BLOCK_HEADER_BYTES, END_RAW_BYTES));
    set_u32(end + 20, crc32_of(end, 20));
    spill(other, whole.data, whole.len);
    struct recording *r = recording_open(other, &e);
    assert_non_null(r);
    assert_int_equal(recording_verify_all(r, &e), -1);
    assert_non_null(strstr(e.text, "digest of all blocks"));
    recording_close(r);
    bytes_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_hostile),      cmocka_unit_test(test_missing_block),
        cmocka_unit_test(test_many_ends),    cmocka_unit_test(test_digest),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
