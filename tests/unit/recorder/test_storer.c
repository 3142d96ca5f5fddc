/* recorder/storer.h: pages that are stored while the machine goes on. */
#include "tests/unit/recording/recording_content.h"

#include "recorder/storer.h"

#define PAGES  3000u
#define ROUNDS 3u

static uint32_t to[PAGES];

static void fill(uint8_t *page, uint32_t value)
{
    memset(page, 0, CHUNK_MAX_BYTES);
    memcpy(page, &value, sizeof value);
}

static uint32_t value_of(unsigned round, unsigned i)
{
    return 1 + (i * 7 + round) % 2000;
}

static void assert_stored(struct chunk_source *source, unsigned round)
{
    uint8_t page[CHUNK_MAX_BYTES], wanted[CHUNK_MAX_BYTES];
    struct err e = {0};
    size_t len;

    for (unsigned i = 0; i < PAGES; i++) {
        fill(wanted, value_of(round, i));
        assert_int_equal(chunk_read(source, to[i], page, &len, &e), 0);
        assert_memory_equal(page, wanted, sizeof page);
    }
}

/* Each page is in its chunk, whatever else is put into the recording meanwhile; and that is, too.
 */
static void pages_are_stored_beside_others(void **state)
{
    struct storer s = {.running = false};
    uint8_t page[CHUNK_MAX_BYTES];
    uint64_t others = 0, bytes = 0;
    struct err e = {0};
    unsigned busy = 0;

    (void)state;
    s.writer = begin();
    s.chunks = chunks_create(s.writer, &e);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < PAGES; i++)
            fill(page_copies_add(&s.copies, &to[i]), value_of(round, i));
        storer_begin(&s);
        while (!storer_is_idle(&s)) {
            busy++;
            put_content(s.writer, 3, 1000);
            bytes += 1000;
            fill(page, 100000 + (uint32_t)others % 5000);
            others++;
            assert_int_not_equal(chunks_add(s.chunks, page), 0);
            assert_int_equal(writer_epoch(s.writer, &e), 0);
        }
        assert_int_equal(s.copies.count, 0);
    }
    assert_true(busy > 0);
    assert_int_equal(writer_finish(s.writer, 1, "done", &e), 0);
    chunks_destroy(s.chunks);

    struct recording *r = recording_open(path, &e);
    assert_non_null(r);
    assert_int_equal(recording_stream_length(r, 3), bytes);
    struct chunk_source *source = chunk_source_open(r, &e);
    assert_stored(source, ROUNDS - 1);
    chunk_source_close(source);
    struct stream_reader *in = stream_open(r, 3, &e);
    for (uint64_t at = 0; at < bytes; at++)
        assert_int_equal(stream_u8(in), content(3, at));
    stream_close(in);
    recording_close(r);
    page_copies_free(&s.copies);
}

/* One that is waited for has stored all; an empty one is idle. */
static void it_is_waited_for(void **state)
{
    struct storer s = {.running = false};
    struct err e = {0};

    (void)state;
    s.writer = begin();
    s.chunks = chunks_create(s.writer, &e);
    assert_true(storer_is_idle(&s));
    storer_begin(&s);
    storer_wait(&s);
    fill(page_copies_add(&s.copies, &to[0]), 5);
    storer_begin(&s);
    storer_wait(&s);
    assert_true(storer_is_idle(&s));
    assert_int_equal(to[0], 1);
    page_copies_free(&s.copies);
    assert_int_equal(writer_finish(s.writer, 1, "done", &e), 0);
    chunks_destroy(s.chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_stored_beside_others),
        cmocka_unit_test(it_is_waited_for),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
