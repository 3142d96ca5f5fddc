#ifndef TESTS_TOOLS_RECORDING_COPY_H
#define TESTS_TOOLS_RECORDING_COPY_H

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "mmu/memory.h"
#include "recording/chunk_source.h"
#include "recording/reader.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"
#include "recording/writer.h"

/* A recording taken apart, to be changed and put together again as a sound file that says it is of
 * the same format. Errors end the program. */
struct recording_copy {
    struct recording *from;
    struct bytes meta; /* its text */
    struct bytes stream[STREAM_COUNT];
};

static inline _Noreturn void copy_die(const struct err *e)
{
    fprintf(stderr, "%s\n", e->text);
    exit(e->status);
}

static inline void copy_read_stream(struct recording_copy *copy, unsigned stream)
{
    struct err e = {0};
    struct stream_reader *in = stream_open(copy->from, stream, &e);

    if (!in)
        copy_die(&e);
    const uint64_t len = stream_left(in);
    bytes_reserve(&copy->stream[stream], len);
    if (stream_read(in, copy->stream[stream].data, len) < 0) {
        stream_error(in, &e);
        copy_die(&e);
    }
    copy->stream[stream].len = len;
    stream_close(in);
}

static inline void copy_open(struct recording_copy *copy, const char *path)
{
    struct err e = {0};
    size_t len;

    *copy = (struct recording_copy){.from = recording_open(path, &e)};
    if (!copy->from)
        copy_die(&e);
    const char *meta = recording_meta(copy->from, &len);
    bytes_put(&copy->meta, meta, len);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        copy_read_stream(copy, i);
}

static inline void copy_close(struct recording_copy *copy)
{
    recording_close(copy->from);
    bytes_free(&copy->meta);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        bytes_free(&copy->stream[i]);
}

/* The streams are as they were, so a reader has to read them as it did. (It sees by itself how
 * blocks are packed.) */
static inline void copy_keep_version(const struct recording_copy *copy, const char *path)
{
    uint8_t header[FILE_HEADER_BYTES];
    FILE *f = fopen(path, "r+b");

    file_header_encode(header, recording_version(copy->from));
    if (!f || fwrite(header, 1, sizeof header, f) != sizeof header || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

/* `page`: PAGE_BYTES of one more chunk behind the recording's, or NULL. */
static inline void copy_write(const struct recording_copy *copy, const char *path, const void *page)
{
    struct err e = {0};
    size_t len;
    struct recording_writer *w = writer_create(path, true, &e);
    struct chunk_source *chunks = chunk_source_open(copy->from, &e);
    const struct end_record *end = recording_end(copy->from);
    uint8_t chunk[CHUNK_MAX_BYTES];

    if (!w || !chunks || writer_meta(w, (const char *)copy->meta.data, copy->meta.len, &e) < 0)
        copy_die(&e);
    for (uint64_t id = 1; id <= recording_chunks(copy->from); id++) {
        if (chunk_read(chunks, id, chunk, &len, &e) < 0)
            copy_die(&e);
        writer_put_chunk(w, chunk, len);
    }
    if (page)
        writer_put_chunk(w, page, PAGE_BYTES);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        if (copy->stream[i].len)
            writer_put(w, i, copy->stream[i].data, copy->stream[i].len);
    if (writer_epoch(w, &e) < 0 ||
        writer_finish(w, end ? end->reason_code : 0, end ? end->reason : "", &e) < 0)
        copy_die(&e);
    copy_keep_version(copy, path);
    chunk_source_close(chunks);
}

#endif
