/*
 * Pages in a recording: equal ones once, all of them back by number.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recording/chunk_source.h"
#include "recording/chunks.h"

static const char META[] = "{}";

static char dir[] = "/tmp/ditto-test-XXXXXX";
static char path[64];

static struct recording_writer *begin(void)
{
    struct err e = {0};
    struct recording_writer *w = writer_create(path, true, &e);

    if (!w)
        fail_msg("%s", e.text);
    assert_int_equal(writer_meta(w, META, strlen(META), &e), 0);
    return w;
}

static struct recording *finish(struct recording_writer *w)
{
    struct err e = {0};

    assert_int_equal(writer_finish(w, 0, "", &e), 0);
    struct recording *r = recording_open(path, &e);
    if (!r)
        fail_msg("%s", e.text);
    assert_int_equal(recording_verify_all(r, &e), 0);
    return r;
}

/* Page number n of a family of different pages; half of each is noise. */
static void make_page(uint8_t *page, uint32_t n)
{
    uint64_t v = n * 0x9e3779b97f4a7c15ull + 1;

    memset(page, 0x5a, CHUNK_MAX_BYTES);
    memcpy(page, &n, sizeof n);
    for (unsigned i = 8; i < CHUNK_MAX_BYTES / 2; i++) {
        v ^= v << 13;
        v ^= v >> 7;
        v ^= v << 17;
        page[i] = (uint8_t)v;
    }
}

static void test_equal_pages_once(void **state)
{
    enum { DIFFERENT = 3000, ADDED = 3 * DIFFERENT };
    struct err e = {0};
    struct recording_writer *w = begin();
    struct chunk_store *s = chunks_create(w, &e);
    static uint64_t ids[DIFFERENT];
    uint8_t page[CHUNK_MAX_BYTES], back[CHUNK_MAX_BYTES];
    size_t len;

    (void)state;
    assert_non_null(s);
    for (uint32_t i = 0; i < ADDED; i++) {
        uint32_t n = i * 7 % DIFFERENT;
        make_page(page, n);
        uint64_t id = chunks_add(s, page);
        if (i < DIFFERENT)
            ids[n] = id;
        assert_int_equal(id, ids[n]);
        if (i % 1000 == 0)
            assert_int_equal(writer_epoch(w, &e), 0);
    }
    assert_int_equal(chunks_stored(s), DIFFERENT);
    assert_int_equal(chunks_added(s), ADDED);
    chunks_destroy(s);

    struct recording *r = finish(w);
    assert_int_equal(recording_chunks(r), DIFFERENT);
    assert_true(recording_chunk_blocks(r)->count > 20); /* more than are cached */
    struct chunk_source *c = chunk_source_open(r, &e);
    srand(1);
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t n = i < 300 ? i : (uint32_t)rand() % DIFFERENT; /* neighbours, then anywhere */
        make_page(page, n);
        assert_int_equal(chunk_read(c, ids[n], back, &len, &e), 0);
        assert_int_equal(len, CHUNK_MAX_BYTES);
        assert_memory_equal(page, back, CHUNK_MAX_BYTES);
    }
    assert_int_equal(chunk_read(c, DIFFERENT + 1, back, &len, &e), -1);
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    assert_int_equal(chunk_read(c, UINT64_MAX, back, &len, &e), -1);
    chunk_source_close(c);
    recording_close(r);
}

static void test_zero_page(void **state)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    struct chunk_store *s = chunks_create(w, &e);
    uint8_t page[CHUNK_MAX_BYTES] = {0};
    size_t len;

    (void)state;
    assert_int_equal(chunks_add(s, page), CHUNK_ZERO_PAGE);
    assert_int_equal(chunks_stored(s), 0);
    page[CHUNK_MAX_BYTES - 1] = 1;
    assert_int_equal(chunks_add(s, page), 1);
    page[CHUNK_MAX_BYTES - 1] = 0;
    page[0] = 1;
    assert_int_equal(chunks_add(s, page), 2);
    chunks_destroy(s);

    struct recording *r = finish(w);
    struct chunk_source *c = chunk_source_open(r, &e);
    memset(page, 0xff, sizeof page);
    assert_int_equal(chunk_read(c, 0, page, &len, &e), 0);
    assert_int_equal(len, CHUNK_MAX_BYTES);
    for (unsigned i = 0; i < sizeof page; i++)
        assert_int_equal(page[i], 0);
    chunk_source_close(c);
    recording_close(r);
}

static void test_pieces(void **state)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    struct chunk_store *s = chunks_create(w, &e);
    uint8_t page[CHUNK_MAX_BYTES] = {0}, back[CHUNK_MAX_BYTES];
    size_t len;

    (void)state;
    /* Zeroes of every length but the page's are chunks of their own. */
    for (size_t n = 1; n < CHUNK_MAX_BYTES; n++)
        assert_int_equal(chunks_add_piece(s, page, n), n);
    for (size_t n = 1; n < CHUNK_MAX_BYTES; n++)
        assert_int_equal(chunks_add_piece(s, page, n), n);
    assert_int_equal(chunks_add_piece(s, page, CHUNK_MAX_BYTES), CHUNK_ZERO_PAGE);
    memset(page, 9, sizeof page);
    uint64_t id = chunks_add(s, page);
    assert_int_equal(id, CHUNK_MAX_BYTES);
    assert_int_equal(chunks_add_piece(s, page, CHUNK_MAX_BYTES), id);
    chunks_destroy(s);

    struct recording *r = finish(w);
    struct chunk_source *c = chunk_source_open(r, &e);
    for (size_t n = 1; n < CHUNK_MAX_BYTES; n += 5) {
        memset(back, 0xff, sizeof back);
        assert_int_equal(chunk_read(c, n, back, &len, &e), 0);
        assert_int_equal(len, n);
        assert_true(back[0] == 0 && back[n] == 0 && back[CHUNK_MAX_BYTES - 1] == 0);
    }
    chunk_source_close(c);
    recording_close(r);
}

/* So many tiny chunks that a block is full by their number. */
static void test_many_tiny_chunks(void **state)
{
    enum { CHUNKS = BLOCK_MAX_ITEMS + 1000 };
    struct err e = {0};
    struct recording_writer *w = begin();
    uint8_t back[CHUNK_MAX_BYTES];
    size_t len;

    (void)state;
    for (uint32_t i = 1; i <= CHUNKS; i++)
        assert_int_equal(writer_put_chunk(w, &(uint8_t){(uint8_t)(i * 7)}, 1), i);

    struct recording *r = finish(w);
    assert_int_equal(recording_chunk_blocks(r)->count, 2);
    struct chunk_source *c = chunk_source_open(r, &e);
    for (uint32_t i = 1; i <= CHUNKS; i += 111) {
        assert_int_equal(chunk_read(c, i, back, &len, &e), 0);
        assert_int_equal(len, 1);
        assert_int_equal(back[0], (uint8_t)(i * 7));
    }
    chunk_source_close(c);
    recording_close(r);
}

/* A CHUNKS block whose checksums are right and whose lengths are not. */
static void test_wrong_lengths(void **state)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    uint8_t page[CHUNK_MAX_BYTES], raw[3], header[BLOCK_HEADER_BYTES];
    struct block_header h;
    size_t len;

    (void)state;
    assert_int_equal(writer_put_chunk(w, "x", 1), 1); /* too short to be compressed */
    struct recording *r = finish(w);
    uint32_t ordinal = recording_chunk_blocks(r)->ordinals[0];
    off_t at = (off_t)recording_block(r, ordinal)->offset;
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    for (unsigned i = 0; i < 3; i++) {
        static const uint16_t lengths[] = {0, 2, 1};
        fseek(f, at, SEEK_SET);
        assert_int_equal(fread(header, sizeof header, 1, f), 1);
        assert_int_equal(fread(raw, sizeof raw, 1, f), 1);
        assert_true(block_header_decode(&h, header));
        assert_int_equal(h.stored_len, sizeof raw);
        raw[1] = (uint8_t)lengths[i];
        h.stored_crc = crc32_of(raw, sizeof raw);
        block_header_encode(header, &h);
        fseek(f, at, SEEK_SET);
        fwrite(header, sizeof header, 1, f);
        fwrite(raw, sizeof raw, 1, f);
        fflush(f);
        bool good = lengths[i] == 1;
        struct chunk_source *c = chunk_source_open(r, &e);
        assert_int_equal(recording_verify_all(r, &e), good ? 0 : -1);
        assert_int_equal(chunk_read(c, 1, page, &len, &e), good ? 0 : -1);
        chunk_source_close(c);
    }
    fclose(f);
    recording_close(r);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/recording", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_pages_once), cmocka_unit_test(test_zero_page),
        cmocka_unit_test(test_pieces),           cmocka_unit_test(test_many_tiny_chunks),
        cmocka_unit_test(test_wrong_lengths),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
