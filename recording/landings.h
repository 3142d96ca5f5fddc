#ifndef RECORDING_LANDINGS_H
#define RECORDING_LANDINGS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "recording/reader.h"

/* What finding a forced point of a recording again has cost in a replay. */
struct landing {
    uint64_t ordinal, rip; /* sync point, and where it is */
    unsigned cpl;
    uint64_t exits, ns; /* from the sync point before it to here */
};

struct landing_log {
    struct landing *at;
    size_t count, capacity;
    /* Of the whole replay. */
    uint64_t time, ns; /* when it was, in seconds since 1970; how long it took */
    char clock[16];
};

/* Out of memory: the entry is lost, which only a report misses. */
void landing_log_add(struct landing_log *log, const struct landing *landing);
void landing_log_free(struct landing_log *log);

/* Add the log of a replay that just ended to its recording, a finished one. */
int landing_log_save(const struct landing_log *log, const char *path, struct err *e);
/* The last log in a recording; empty when there is none. */
int landing_log_load(struct landing_log *log, const struct recording *r, struct err *e);

/* The distribution, and the slowest ones: for users, and as JSON (the caller's). Reorders the log.
 */
void landing_log_print(struct landing_log *log, FILE *out);
json_t *landing_log_json(struct landing_log *log);

#endif
