#ifndef TESTS_UNIT_RECORDING_RECORDING_CONTENT_H
#define TESTS_UNIT_RECORDING_RECORDING_CONTENT_H

/*
 * For the tests of the recording file: recordings whose content can be checked without knowing how
 * they were made, because every byte is a function of its place.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "recording/chunk_source.h"
#include "recording/reader.h"
#include "recording/stream_reader.h"
#include "recording/writer.h"

static const char META[] = "{\"recorder\":\"test\"}";
static const unsigned USED[] = {0, 3, 63};

static char dir[] = "/tmp/ditto-test-XXXXXX";
static char path[64], other[64];

static inline uint8_t content(unsigned stream, uint64_t offset)
{
    uint64_t v = (offset / 3 + stream * 1000003u) * 0x9e3779b97f4a7c15ull;
    return (uint8_t)((v >> 32) & (stream == 63 ? 0xff : 0x0f));
}

static inline size_t chunk_length(uint64_t id)
{
    return id % 3 ? 40 + id % 50 : 1 + id % 7;
}

static inline uint64_t put_len(unsigned stream, uint64_t epoch, uint64_t scale)
{
    return (epoch * 37 + stream * 11 + 5) % 90 * scale;
}

static inline uint64_t length_after(unsigned stream, uint64_t epochs, uint64_t scale)
{
    uint64_t sum = 0;

    for (uint64_t k = 1; k <= epochs; k++)
        sum += put_len(stream, k, scale);
    return sum;
}

static inline void put_content(struct recording_writer *w, unsigned stream, uint64_t len)
{
    uint8_t piece[777];

    while (len) {
        size_t n = len < sizeof piece ? (size_t)len : sizeof piece;
        uint64_t at = writer_tell(w, stream);
        for (size_t i = 0; i < n; i++)
            piece[i] = content(stream, at + i);
        writer_put(w, stream, piece, n);
        len -= n;
    }
}

static inline int put_epoch(struct recording_writer *w, uint64_t epoch, uint64_t scale,
                            struct err *e)
{
    uint8_t chunk[CHUNK_MAX_BYTES];

    for (unsigned i = 0; i < 3; i++)
        put_content(w, USED[i], put_len(USED[i], epoch, scale));
    for (uint64_t id = epoch * 2 - 1; id <= epoch * 2; id++) {
        memset(chunk, (int)(id * 7), sizeof chunk);
        assert_int_equal(writer_put_chunk(w, chunk, chunk_length(id)), id);
    }
    return writer_epoch(w, e);
}

static inline struct recording_writer *begin(void)
{
    struct err e = {0};
    struct recording_writer *w = writer_create(path, true, &e);

    if (!w)
        fail_msg("%s", e.text);
    assert_int_equal(writer_meta(w, META, strlen(META), &e), 0);
    return w;
}

static inline void record(uint64_t epochs, uint64_t scale)
{
    struct err e = {0};
    struct recording_writer *w = begin();

    for (uint64_t k = 1; k <= epochs; k++)
        assert_int_equal(put_epoch(w, k, scale, &e), 0);
    assert_int_equal(writer_finish(w, 7, "guest\x1bpowered off", &e), 0);
}

static inline int check_stream(const struct recording *r, unsigned stream, struct err *e)
{
    struct stream_reader *s = stream_open(r, stream, e);
    uint8_t piece[501];

    assert_non_null(s);
    while (stream_left(s)) {
        uint64_t at = stream_tell(s);
        size_t n = stream_left(s) < sizeof piece ? (size_t)stream_left(s) : sizeof piece;
        if (stream_read(s, piece, n))
            break;
        for (size_t i = 0; i < n; i++)
            assert_int_equal(piece[i], content(stream, at + i));
    }
    int rc = stream_error(s, e);
    if (!rc) {
        size_t got;
        assert_int_equal(stream_tell(s), recording_stream_length(r, stream));
        stream_peek(s, 1, &got);
        assert_int_equal(got, 0);
    }
    stream_close(s);
    return rc;
}

static inline int check_chunks(const struct recording *r, struct err *e)
{
    struct chunk_source *c = chunk_source_open(r, e);
    uint8_t page[CHUNK_MAX_BYTES];
    int rc = 0;

    assert_non_null(c);
    for (uint64_t id = recording_chunks(r); id >= 1 && !rc; id--) {
        size_t len;
        rc = chunk_read(c, id, page, &len, e);
        if (rc)
            break;
        assert_int_equal(len, chunk_length(id));
        for (size_t i = 0; i < sizeof page; i++)
            assert_int_equal(page[i], i < len ? (uint8_t)(id * 7) : 0);
    }
    chunk_source_close(c);
    return rc;
}

/* -1 on an error; data that was read without one must be what record() put, up to some epoch. */
static inline int check(const char *file, uint64_t scale, uint64_t *epochs, bool *complete,
                        struct err *e)
{
    struct recording *r = recording_open(file, e);
    size_t len;

    if (!r)
        return -1;
    *epochs = recording_epochs(r);
    *complete = recording_complete(r);
    assert_string_equal(recording_meta(r, &len), META);
    assert_int_equal(len, strlen(META));
    assert_int_equal(recording_chunks(r), *epochs * 2);
    int rc = recording_verify_all(r, e);
    int read = check_chunks(r, e);
    for (unsigned i = 0; i < 3 && !read; i++) {
        assert_int_equal(recording_stream_length(r, USED[i]),
                         length_after(USED[i], *epochs, scale));
        read = check_stream(r, USED[i], e);
    }
    /* Verifying finds what reading finds, and more. */
    if (!rc)
        assert_int_equal(read, 0);
    recording_close(r);
    return rc;
}

static inline struct bytes slurp(const char *file)
{
    struct bytes b = {0};
    int fd = open(file, O_RDONLY);
    struct stat st;

    assert_true(fd >= 0 && !fstat(fd, &st));
    bytes_reserve(&b, (size_t)st.st_size + 1);
    assert_int_equal(read(fd, b.data, (size_t)st.st_size), st.st_size);
    b.len = (size_t)st.st_size;
    close(fd);
    return b;
}

static inline void spill(const char *file, const void *data, size_t len)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static inline void expect_refused(const char *file, const char *text)
{
    struct err e = {0};

    assert_null(recording_open(file, &e));
    assert_int_equal(e.status, STATUS_BAD_RECORDING);
    if (!strstr(e.text, text) || !strstr(e.text, file))
        fail_msg("'%s' lacks '%s'", e.text, text);
}

/* Where the last block of a good file begins. */
static inline size_t last_block(const struct bytes *file)
{
    size_t at = FILE_HEADER_BYTES;

    for (;;) {
        struct block_header h;
        assert_true(block_header_decode(&h, file->data + at));
        if (at + BLOCK_HEADER_BYTES + h.stored_len == file->len)
            return at;
        at += BLOCK_HEADER_BYTES + h.stored_len;
    }
}

static inline int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/recording", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    return 0;
}

static inline int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    unlink(other);
    return rmdir(dir);
}

#endif
