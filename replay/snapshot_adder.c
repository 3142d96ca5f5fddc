#include "replay/snapshot_adder.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording/chunk_source.h"

/* Have the store know every chunk that there is. */
static int know_chunks(struct snapshot_adder *a, struct err *e)
{
    struct chunk_source *source = chunk_source_open(a->recording, e);
    uint8_t page[CHUNK_MAX_BYTES];
    int rc = source ? 0 : -1;
    size_t len;

    for (uint64_t id = 1; rc == 0 && id <= recording_chunks(a->recording); id++) {
        rc = chunk_read(source, id, page, &len, e);
        if (rc == 0)
            chunks_know(a->chunks, page, len);
    }
    if (source)
        chunk_source_close(source);
    return rc;
}

/* What is added is numbered by the headers of the blocks, and was read by the index: a file can say
 * in one what it does not in the other. */
static int check_index(const struct snapshot_adder *a, struct err *e)
{
    bool same = writer_chunks(a->writer) == recording_chunks(a->recording);

    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        same &= writer_tell(a->writer, kind) == recording_stream_length(a->recording, kind);
    return same ? 0
                : err_set(e, STATUS_BAD_RECORDING, "%s is damaged: its index is of other blocks",
                          recording_path(a->recording));
}

static void release(struct snapshot_adder *a)
{
    chunks_destroy(a->chunks);
    snapshot_list_free(&a->list);
    recording_close(a->recording);
    *a = (struct snapshot_adder){0};
}

int snapshot_adder_open(struct snapshot_adder *a, const char *path, struct err *e)
{
    *a = (struct snapshot_adder){0};
    a->writer = writer_reopen(path, &a->end, e);
    if (!a->writer)
        return -1;
    /* Read only now that nobody else adds to it. */
    a->recording = recording_open(path, e);
    if (a->recording && check_index(a, e) == 0)
        a->chunks = chunks_create(a->writer, e);
    if (!a->chunks || snapshot_list_load(&a->list, a->recording, e) < 0 || know_chunks(a, e) < 0) {
        snapshot_adder_abort(a);
        return -1;
    }
    return 0;
}

/* Memory, as chunks. */
static int take_pages(struct snapshot_adder *a, struct player *p, struct snapshot *s, struct err *e)
{
    const struct guest_memory *m = &p->vm.memory;
    uint32_t *image = player_image(p, e);

    if (!image)
        return -1;
    /* Pages of the image were all touched when it was loaded. */
    for (uint64_t start = 0, end; guest_memory_touched(m, &start, &end); start = end) {
        for (uint64_t at = start; at < end; at += PAGE_BYTES) {
            const uint32_t page = (uint32_t)(at / PAGE_BYTES);
            const uint32_t chunk = (uint32_t)chunks_add(a->chunks, m->host + at);
            if (chunk != image[page])
                snapshot_add_page(s, page, chunk);
        }
    }
    free(image);
    return 0;
}

static int put(struct snapshot_adder *a, const struct snapshot *s, struct snapshot_entry *made,
               struct err *e)
{
    struct bytes record = {0};

    snapshot_encode(&record, s);
    snapshot_entry_init(made, s);
    made->len = record.len;
    (void)writer_put(a->writer, STREAM_SNAPSHOTS, record.data, record.len); /* finish says */
    bytes_free(&record);
    a->added++;
    return snapshot_list_add(&a->list, made, e);
}

static int take(struct snapshot_adder *a, struct player *p, const struct snapshot_live *live,
                struct snapshot *s, struct err *e)
{
    const uint64_t before = chunks_stored(a->chunks);

    /* The mark first: it completes the instruction. */
    if (player_mark(p, &s->mark, e) < 0 || take_pages(a, p, s, e) < 0 ||
        (live && live->take(live, a->chunks, &s->live, e) < 0))
        return -1;
    snapshot_bound_live(s);
    s->new_chunks = chunks_stored(a->chunks) - before;
    return 0;
}

int snapshot_adder_put(struct snapshot_adder *a, struct player *p, const char *name,
                       const struct snapshot_live *live, struct snapshot_entry *made, struct err *e)
{
    struct snapshot s = {0};

    assert(p->at_sync && p->ordinal);
    if (name)
        snprintf(s.name, sizeof s.name, "%s", name);
    else
        snapshot_list_new_name(&a->list, s.name);
    if (snapshot_list_check_name(&a->list, a->recording, s.name, e) < 0)
        return -1;
    int rc = take(a, p, live, &s, e) < 0 ? -1 : put(a, &s, made, e);
    snapshot_free(&s);
    return rc;
}

int snapshot_adder_finish(struct snapshot_adder *a, struct err *e)
{
    const int rc = writer_finish(a->writer, a->end.reason_code, a->end.reason, e);

    release(a);
    return rc;
}

void snapshot_adder_abort(struct snapshot_adder *a)
{
    writer_abort(a->writer);
    release(a);
}
