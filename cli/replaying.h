#ifndef CLI_REPLAYING_H
#define CLI_REPLAYING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "recording/places/snapshot_list.h"
#include "replay/player.h"

/* `replay` shows what the machine put out; `verify` is the same without the output. */
struct replay_options {
    const char *recording; /* as it was given */
    struct snapshot_place place;
    uint64_t until;
    bool quiet, json, landings, diverge, parallel;
    const struct clock_ops *clock;
    const char *gdb;            /* where it is waited for; NULL: no gdb */
    uint64_t checkpoint_memory; /* bytes */
};

/* Say on `out` how a replay went, and on stderr where and how it diverged. Returns the exit status.
 */
int replay_report(struct player *p, const struct replay_options *o, FILE *out);

/* Replay under gdb, until it ends that or a signal comes. -1, with the reason. */
int replay_under_gdb(struct recording *recording, const struct replay_options *o, struct err *e);

#endif
