#include "recording/landings.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"
#include "recording/writer.h"

#define SLOWEST 5
/* Of one replay; a recording of 13 minutes of stress has 30,000. */
#define LANDINGS_MAX (1u << 22)

void landing_log_add(struct landing_log *log, const struct landing *landing)
{
    if (log->count == LANDINGS_MAX)
        return;
    if (log->count == log->capacity) {
        size_t capacity = log->capacity ? 2 * log->capacity : 256;
        struct landing *at = realloc(log->at, capacity * sizeof *at);
        if (!at)
            return;
        log->at = at;
        log->capacity = capacity;
    }
    log->at[log->count++] = *landing;
}

void landing_log_free(struct landing_log *log)
{
    free(log->at);
    *log = (struct landing_log){0};
}

/* ---- in the recording ---- */

int landing_log_save(const struct landing_log *log, const char *path, struct err *e)
{
    struct end_record end;
    struct bytes out = {0};
    uint64_t ordinal = 0;
    struct recording_writer *w = writer_reopen(path, &end, e);

    if (!w)
        return -1;
    bytes_put_varint(&out, log->time);
    bytes_put_varint(&out, log->ns);
    bytes_put_varint(&out, strlen(log->clock));
    bytes_put(&out, log->clock, strlen(log->clock));
    bytes_put_varint(&out, log->count);
    for (size_t i = 0; i < log->count; i++) {
        const struct landing *l = &log->at[i];
        bytes_put_varint(&out, l->ordinal - ordinal);
        bytes_put_varint(&out, l->rip);
        bytes_put_varint(&out, l->cpl);
        bytes_put_varint(&out, l->exits);
        bytes_put_varint(&out, l->ns);
        ordinal = l->ordinal;
    }
    (void)writer_put(w, STREAM_LANDINGS, out.data, out.len); /* writer_finish() says */
    bytes_free(&out);
    return writer_finish(w, end.reason_code, end.reason, e);
}

static int load_one(struct landing_log *log, struct stream_reader *in, struct err *e)
{
    uint64_t ordinal = 0;

    landing_log_free(log);
    log->time = stream_varint(in);
    log->ns = stream_varint(in);
    const uint64_t name = stream_varint(in);
    if (name >= sizeof log->clock)
        return -1;
    stream_read(in, log->clock, (size_t)name);
    text_clean(log->clock);
    uint64_t left = stream_varint(in);
    if (left > LANDINGS_MAX)
        return -1;
    for (; left && !stream_bad(in); left--) {
        struct landing l;
        l.ordinal = ordinal += stream_varint(in);
        l.rip = stream_varint(in);
        l.cpl = (unsigned)stream_varint(in);
        l.exits = stream_varint(in);
        l.ns = stream_varint(in);
        landing_log_add(log, &l);
    }
    return stream_error(in, e);
}

int landing_log_load(struct landing_log *log, const struct recording *r, struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_LANDINGS, e);
    int rc = in ? 0 : -1;

    *log = (struct landing_log){0};
    while (rc == 0 && stream_left(in)) {
        rc = load_one(log, in, e);
        if (rc < 0)
            err_set(e, STATUS_BAD_RECORDING, "%s: the costs of landings in it make no sense",
                    recording_path(r));
    }
    if (in)
        stream_close(in);
    if (rc < 0)
        landing_log_free(log);
    return rc;
}

/* ---- reports ---- */

static int by_exits(const void *a, const void *b)
{
    const struct landing *x = a, *y = b;

    return (x->exits > y->exits) - (x->exits < y->exits);
}

static int by_ns(const void *a, const void *b)
{
    const struct landing *x = a, *y = b;

    return (x->ns > y->ns) - (x->ns < y->ns);
}

struct distribution {
    uint64_t exits[3], ns[3]; /* median, 99th percentile, maximum */
};

/* Leaves the slowest ones at the end. */
static struct distribution distribute(struct landing_log *log)
{
    struct distribution d = {0};

    if (!log->count)
        return d;
    const size_t rank[3] = {(log->count - 1) / 2, (log->count * 99 + 99) / 100 - 1, log->count - 1};
    qsort(log->at, log->count, sizeof *log->at, by_exits);
    for (unsigned i = 0; i < 3; i++)
        d.exits[i] = log->at[rank[i]].exits;
    qsort(log->at, log->count, sizeof *log->at, by_ns);
    for (unsigned i = 0; i < 3; i++)
        d.ns[i] = log->at[rank[i]].ns;
    return d;
}

void landing_log_print(struct landing_log *log, FILE *out)
{
    const struct distribution d = distribute(log);

    fprintf(out, "landings: %zu", log->count);
    if (log->clock[0])
        fprintf(out, ", by the clock %s, in a replay of %.1f s", log->clock, (double)log->ns / 1e9);
    fputc('\n', out);
    if (!log->count)
        return;
    fprintf(out,
            "             median        99 %%         max\n"
            "  exits  %10llu  %10llu  %10llu\n"
            "  ms     %10.2f  %10.2f  %10.2f\n"
            "the slowest:\n",
            (unsigned long long)d.exits[0], (unsigned long long)d.exits[1],
            (unsigned long long)d.exits[2], (double)d.ns[0] / 1e6, (double)d.ns[1] / 1e6,
            (double)d.ns[2] / 1e6);
    for (size_t i = 0; i < SLOWEST && i < log->count; i++) {
        const struct landing *l = &log->at[log->count - 1 - i];
        fprintf(out, "  sync point %llu, rip %#llx, CPL %u: %llu exits, %.2f ms\n",
                (unsigned long long)l->ordinal, (unsigned long long)l->rip, l->cpl,
                (unsigned long long)l->exits, (double)l->ns / 1e6);
    }
}

json_t *landing_log_json(struct landing_log *log)
{
    const struct distribution d = distribute(log);

    return json_pack("{s:s, s:f, s:I, s:{s:I, s:I, s:I}, s:{s:f, s:f, s:f}}", "clock", log->clock,
                     "seconds", (double)log->ns / 1e9, "count", (json_int_t)log->count, "exits",
                     "median", (json_int_t)d.exits[0], "p99", (json_int_t)d.exits[1], "max",
                     (json_int_t)d.exits[2], "ms", "median", (double)d.ns[0] / 1e6, "p99",
                     (double)d.ns[1] / 1e6, "max", (double)d.ns[2] / 1e6);
}
