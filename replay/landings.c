#include "replay/landings.h"

#include <stdlib.h>

#define SLOWEST 5

void landing_log_add(struct landing_log *log, const struct landing *landing)
{
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

    fprintf(out, "landings: %zu\n", log->count);
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

    return json_pack("{s:I, s:{s:I, s:I, s:I}, s:{s:f, s:f, s:f}}", "count", (json_int_t)log->count,
                     "exits", "median", (json_int_t)d.exits[0], "p99", (json_int_t)d.exits[1],
                     "max", (json_int_t)d.exits[2], "ms", "median", (double)d.ns[0] / 1e6, "p99",
                     (double)d.ns[1] / 1e6, "max", (double)d.ns[2] / 1e6);
}
