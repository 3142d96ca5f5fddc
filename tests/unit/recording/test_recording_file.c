/*
 * The recording file: writer against reader, killed and failing writers.
 */
#include "tests/unit/recording/recording_content.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void test_round_trip(void **state)
{
    struct err e = {0};
    uint64_t epochs;
    bool complete;

    (void)state;
    record(40, 400); /* blocks fill up between epochs too */
    if (check(path, 400, &epochs, &complete, &e))
        fail_msg("%s", e.text);
    assert_int_equal(epochs, 40);
    assert_true(complete);

    struct recording *r = recording_open(path, &e);
    assert_non_null(r);
    assert_int_equal(recording_end(r)->reason_code, 7);
    assert_string_equal(recording_end(r)->reason, "guest?powered off");
    assert_int_equal(recording_stream_length(r, 5), 0);
    assert_true(recording_stored_bytes(r, BLOCK_STREAM, 0) < recording_stream_length(r, 0) * 3 / 4);
    recording_close(r);
}

static void test_large_put(void **state)
{
    enum { LEN = 3000000 };
    struct err e = {0};
    struct recording_writer *w = begin();
    uint8_t *data = malloc(LEN), *back = malloc(LEN);

    (void)state;
    for (size_t i = 0; i < LEN; i++)
        data[i] = content(63, i);
    writer_put(w, 63, data, LEN);
    assert_int_equal(writer_pending(w), LEN);
    assert_int_equal(writer_epoch(w, &e), 0);
    assert_int_equal(writer_pending(w), 0);
    assert_int_equal(writer_epoch(w, &e), 0); /* nothing new: no epoch */
    assert_int_equal(writer_finish(w, 0, "", &e), 0);

    struct recording *r = recording_open(path, &e);
    assert_non_null(r);
    assert_int_equal(recording_epochs(r), 1);
    struct stream_reader *s = stream_open(r, 63, &e);
    assert_int_equal(stream_read(s, back, LEN), 0);
    assert_memory_equal(data, back, LEN);
    assert_int_equal(stream_read(s, back, 1), -1);
    assert_true(stream_bad(s));
    assert_int_equal(stream_left(s), 0);
    assert_int_equal(stream_error(s, &e), -1);
    srand(1);
    for (int i = 0; i < 60; i++) {
        size_t got, at = (size_t)rand() % (LEN + 1);
        stream_seek(s, at);
        assert_int_equal(stream_tell(s), at);
        const uint8_t *p = stream_peek(s, STREAM_MAX_PEEK, &got);
        assert_true(got >= STREAM_MAX_PEEK || got == LEN - at);
        assert_memory_equal(p, data + at, got);
        stream_skip(s, got / 2);
        assert_int_equal(stream_tell(s), at + got / 2);
    }
    stream_seek(s, LEN);
    assert_int_equal(stream_left(s), 0);
    assert_false(stream_bad(s));
    stream_seek(s, LEN + 1);
    assert_true(stream_bad(s));
    stream_close(s);
    recording_close(r);
    free(data);
    free(back);
}

static void test_numbers_across_blocks(void **state)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    struct bytes b = {0};

    (void)state;
    /* One epoch for each number: a block of two bytes or more, then numbers cut by blocks. */
    for (unsigned i = 0; i < 64; i++) {
        bytes_put_varint(&b, UINT64_MAX >> i);
        bytes_put_svarint(&b, -(int64_t)(UINT64_MAX >> 1 >> i));
        bytes_put_u8(&b, (uint8_t)i);
    }
    bytes_put_u8(&b, 0x80);
    for (size_t i = 0; i < b.len; i += 3) {
        writer_put(w, 1, b.data + i, b.len - i < 3 ? b.len - i : 3);
        assert_int_equal(writer_epoch(w, &e), 0);
    }
    uint8_t no_number[10];
    memset(no_number, 0xff, sizeof no_number);
    writer_put(w, 2, no_number, sizeof no_number);
    assert_int_equal(writer_finish(w, 0, "", &e), 0);

    struct recording *r = recording_open(path, &e);
    assert_non_null(r);
    struct stream_reader *s = stream_open(r, 1, &e);
    for (unsigned i = 0; i < 64; i++) {
        assert_true(stream_varint(s) == UINT64_MAX >> i);
        assert_true(stream_svarint(s) == -(int64_t)(UINT64_MAX >> 1 >> i));
        assert_int_equal(stream_u8(s), i);
    }
    assert_false(stream_bad(s));
    assert_int_equal(stream_varint(s), 0); /* cut short */
    assert_true(stream_bad(s));
    assert_int_equal(stream_error(s, &e), -1);
    assert_non_null(strstr(e.text, "within a record"));
    stream_close(s);
    s = stream_open(r, 2, &e);
    assert_int_equal(stream_varint(s), 0);
    assert_int_equal(stream_error(s, &e), -1);
    assert_non_null(strstr(e.text, "no number"));
    stream_close(s);
    s = stream_open(r, 9, &e); /* empty */
    assert_int_equal(stream_u8(s), 0);
    assert_true(stream_bad(s));
    stream_close(s);
    recording_close(r);
    bytes_free(&b);
}

static bool block_is_written(void)
{
    struct err e = {0};
    struct recording *r = recording_open(path, &e);

    recording_close(r);
    return r != NULL;
}

static void add_epochs(uint64_t from, uint64_t to)
{
    struct end_record end;
    struct err e = {0};
    struct recording_writer *w = writer_reopen(path, &end, &e);

    if (!w)
        fail_msg("%s", e.text);
    for (uint64_t k = from; k <= to; k++)
        assert_int_equal(put_epoch(w, k, 5, &e), 0);
    assert_int_equal(end.reason_code, 7);
    assert_int_equal(writer_finish(w, end.reason_code, end.reason, &e), 0);
}

static void expect_epochs(const char *file, uint64_t expected)
{
    struct err e = {0};
    uint64_t epochs;
    bool complete;

    if (check(file, 5, &epochs, &complete, &e))
        fail_msg("%s", e.text);
    assert_true(complete);
    assert_int_equal(epochs, expected);
}

/* A finished recording is added to, twice; wherever an addition stops, what was there before is. */
static void test_additions(void **state)
{
    struct err e = {0};
    struct end_record end;

    (void)state;
    record(3, 5);
    struct bytes first = slurp(path);
    add_epochs(4, 5);
    struct bytes second = slurp(path);
    add_epochs(6, 6);
    expect_epochs(path, 6);
    struct bytes third = slurp(path);
    assert_memory_equal(third.data, second.data, second.len);
    assert_memory_equal(second.data, first.data, first.len);
    for (size_t len = first.len; len < third.len; len++) {
        spill(other, third.data, len);
        expect_epochs(other, len < second.len ? 3 : 5);
        /* And can be added to anew. */
        if (len % 7)
            continue;
        struct recording_writer *again = writer_reopen(other, &end, &e);
        if (!again)
            fail_msg("%s", e.text);
        assert_int_equal(put_epoch(again, len < second.len ? 4 : 6, 5, &e), 0);
        assert_int_equal(writer_finish(again, end.reason_code, end.reason, &e), 0);
        expect_epochs(other, len < second.len ? 4 : 6);
    }

    /* So is one of an older version. */
    uint8_t header[FILE_HEADER_BYTES];
    file_header_encode(header, RECORDING_OLDEST);
    memcpy(first.data, header, sizeof header);
    spill(other, first.data, first.len);
    struct recording_writer *old = writer_reopen(other, &end, &e);
    assert_non_null(old);
    assert_int_equal(put_epoch(old, 4, 5, &e), 0);
    assert_int_equal(writer_finish(old, end.reason_code, end.reason, &e), 0);
    expect_epochs(other, 4);

    /* One that gives up leaves the file as it was. */
    struct recording_writer *w = writer_reopen(path, &end, &e);
    assert_non_null(w);
    assert_null(writer_reopen(path, &end, &e));
    assert_non_null(strstr(e.text, "being written by another"));
    assert_int_equal(put_epoch(w, 7, 5, &e), 0);
    writer_abort(w);
    struct bytes after = slurp(path);
    assert_int_equal(after.len, third.len);
    assert_memory_equal(after.data, third.data, third.len);
    bytes_free(&first);
    bytes_free(&second);
    bytes_free(&third);
    bytes_free(&after);

    /* What was not finished cannot be added to. */
    w = begin();
    assert_int_equal(put_epoch(w, 1, 5, &e), 0);
    put_content(w, 0, 1000000);
    while (!block_is_written())
        usleep(1000);
    writer_abort(w);
    assert_null(writer_reopen(path, &end, &e));
    assert_non_null(strstr(e.text, "no recording that was finished"));
    assert_null(writer_reopen("/dev/null", &end, &e));
    assert_null(writer_reopen("/nonexistent", &end, &e));
}

/* More blocks than one INDEX block has entries for. */
static void test_long_index(void **state)
{
    enum { EPOCHS = BLOCK_MAX_ITEMS / 2 + 100 };
    struct err e = {0};
    struct recording_writer *w = begin();

    (void)state;
    for (int i = 0; i < EPOCHS; i++) {
        put_content(w, 3, 1);
        assert_int_equal(writer_epoch(w, &e), 0);
    }
    assert_int_equal(writer_finish(w, 0, "", &e), 0);
    struct recording *r = recording_open(path, &e);
    if (!r)
        fail_msg("%s", e.text);
    assert_int_equal(recording_end(r)->index_blocks, 2);
    assert_int_equal(recording_epochs(r), EPOCHS);
    assert_int_equal(recording_verify_all(r, &e), 0);
    assert_int_equal(check_stream(r, 3, &e), 0);
    recording_close(r);
}

static void test_create_refuses(void **state)
{
    struct err e = {0};
    uint64_t epochs;
    bool complete;

    (void)state;
    record(2, 1);
    assert_null(writer_create(path, false, &e));
    assert_non_null(strstr(e.text, "exists; give --force"));
    assert_int_equal(check(path, 1, &epochs, &complete, &e), 0);

    struct recording_writer *w = begin();
    assert_null(writer_create(path, true, &e));
    assert_non_null(strstr(e.text, "being written by another"));
    writer_abort(w);
    assert_int_equal(access(path, F_OK), -1); /* there was no epoch */

    spill(other, "a disk image", 12);
    assert_null(writer_create(other, true, &e));
    assert_non_null(strstr(e.text, "not a dittovm recording"));
    spill(other, "", 0);
    w = writer_create(other, true, &e);
    assert_non_null(w);
    writer_abort(w);
    assert_null(writer_create("/dev/null", true, &e));
    assert_non_null(strstr(e.text, "not a regular file"));
    assert_null(writer_create(dir, true, &e));
    assert_null(writer_create("/nonexistent/x", true, &e));
    assert_int_equal(e.status, STATUS_ERROR);
}

static void test_abort_keeps_epochs(void **state)
{
    struct err e = {0};
    struct recording_writer *w = begin();
    uint64_t epochs = 0;
    bool complete;

    (void)state;
    assert_int_equal(put_epoch(w, 1, 1, &e), 0);
    struct recording *r = NULL;
    for (int i = 0; i < 5000 && !(r = recording_open(path, &e)); i++)
        usleep(1000);
    assert_non_null(r);
    assert_true(recording_in_progress(r));
    recording_close(r);
    put_content(w, 0, 1000000);
    writer_abort(w);
    r = recording_open(path, &e);
    assert_non_null(r);
    assert_false(recording_in_progress(r));
    recording_close(r);
    assert_int_equal(check(path, 1, &epochs, &complete, &e), 0);
    assert_int_equal(epochs, 1);
    assert_false(complete);
}

static void test_not_a_recording(void **state)
{
    struct err e = {0};
    uint8_t header[FILE_HEADER_BYTES];
    char text[80];

    (void)state;
    assert_null(recording_open("/nonexistent", &e));
    assert_int_equal(e.status, STATUS_ERROR);
    expect_refused("/dev/null", "not a dittovm recording");
    expect_refused(dir, "not a dittovm recording");
    spill(other, "#!/bin/sh\n", 10);
    expect_refused(other, "is not a dittovm recording");
    spill(other, "", 0);
    expect_refused(other, "nothing to replay");

    file_header_encode(header, RECORDING_VERSION);
    spill(other, header, sizeof header);
    expect_refused(other, "nothing to replay");
    header[12] = 1;
    spill(other, header, sizeof header);
    expect_refused(other, "damaged at byte 0");
    header[12] = 0;
    header[8] = RECORDING_VERSION + 1;
    spill(other, header, sizeof header);
    snprintf(text, sizeof text, "format version %u; this dittovm reads versions %u to %u",
             RECORDING_VERSION + 1, RECORDING_OLDEST, RECORDING_VERSION);
    expect_refused(other, text);
    /* The oldest that is read: what there is of it here is its header. */
    file_header_encode(header, RECORDING_OLDEST);
    spill(other, header, sizeof header);
    expect_refused(other, "nothing to replay");
}

static void test_killed(void **state)
{
    struct err e = {0};
    uint64_t epochs = 0;
    bool complete;
    struct stat st = {0};

    (void)state;
    unlink(path);
    pid_t child = fork();
    if (child == 0) {
        alarm(5); /* should the parent fail */
        struct recording_writer *w = begin();
        for (uint64_t k = 1;; k++)
            put_epoch(w, k, 50, &e);
    }
    assert_true(child > 0);
    for (int i = 0; i < 5000 && st.st_size < 100000; i++) {
        usleep(1000);
        stat(path, &st);
    }
    /* While it is being written it can be read, too. */
    assert_int_equal(check(path, 50, &epochs, &complete, &e), 0);
    assert_false(complete);
    uint64_t before = epochs;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(check(path, 50, &epochs, &complete, &e), 0);
    assert_false(complete);
    assert_true(epochs >= before && epochs > 1);
}

static void test_file_too_large(void **state)
{
    struct rlimit old, limit;
    struct err e = {0}, again = {0};
    uint64_t epochs = 0, k = 1;
    bool complete;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 100001;
    struct recording_writer *w = begin();
    setrlimit(RLIMIT_FSIZE, &limit);
    while (k < 10000 && !put_epoch(w, k, 50, &e))
        k++;
    assert_int_equal(writer_epoch(w, &again), -1);
    assert_string_equal(again.text, e.text);
    assert_int_equal(writer_put(w, 0, &limit, sizeof limit), 0); /* dropped later */
    assert_int_equal(writer_finish(w, 0, "", &again), -1);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(e.status, STATUS_ERROR);
    assert_non_null(strstr(e.text, "File too large; the recording up to here can be replayed"));

    assert_int_equal(check(path, 50, &epochs, &complete, &e), 0);
    assert_true(epochs >= 2 && epochs <= k);
    struct bytes whole = slurp(path);
    assert_true(whole.len < 100001);
    last_block(&whole); /* asserts that the file ends with a whole block */
    bytes_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_large_put),
        cmocka_unit_test(test_numbers_across_blocks),
        cmocka_unit_test(test_additions),
        cmocka_unit_test(test_long_index),
        cmocka_unit_test(test_create_refuses),
        cmocka_unit_test(test_abort_keeps_epochs),
        cmocka_unit_test(test_not_a_recording),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_file_too_large),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
