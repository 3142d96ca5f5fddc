#ifndef REPLAY_LANDINGS_H
#define REPLAY_LANDINGS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What finding each forced point of a recording again has cost in this replay. */
struct landing {
    uint64_t ordinal, rip; /* sync point, and where it is */
    unsigned cpl;
    uint64_t exits, ns; /* from the sync point before it to here */
};

struct landing_log {
    struct landing *at;
    size_t count, capacity;
};

/* Out of memory: the entry is lost, which only a report misses. */
void landing_log_add(struct landing_log *log, const struct landing *landing);
void landing_log_free(struct landing_log *log);

/* The distribution, and the slowest ones: for users, and as JSON (the caller's). Reorders the log.
 */
void landing_log_print(struct landing_log *log, FILE *out);
json_t *landing_log_json(struct landing_log *log);

#endif
