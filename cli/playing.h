#ifndef CLI_PLAYING_H
#define CLI_PLAYING_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/command.h"
#include "recording/places/snapshot_list.h"
#include "replay/player.h"

/* What the commands that play a recording share. */

/*
 * What the emulated host must offer. Opening the recording here also refuses bad ones, and names of
 * snapshots that it does not have or that are behind `until`, before anything is started. adds:
 * something may be added to the recording; `needs` refers to the place then.
 */
int playing_needs(const struct snapshot_place *place, uint64_t until, bool adds,
                  struct host_needs *needs, struct err *e);

/* Play to a sync point (UINT64_MAX: the end). Signals stop it: PLAYER_STOPPED. progress: say on
 * stderr how far it is. */
int playing_run(struct player *p, uint64_t until, bool progress, struct err *e);

/* For commands that go to a place and make something of it. The sync point that a place's name
 * means; UINT64_MAX, the end, for "". */
int playing_find_point(const struct recording *r, const char *name, uint64_t *at, struct err *e);
/* What the emulated host must offer for that: `output` is written. */
int playing_point_needs(const struct snapshot_place *place, const char *output,
                        struct host_needs *needs, struct err *e);
/* 0: the replay stands there. A status, which was said, or -1: it does not. */
int playing_arrived(const struct player *p, uint64_t at, struct err *e);
/* What is to be said of that place: "", or that it is the end, and which. */
const char *playing_which_end(const struct player *p, uint64_t at);

/* Begin where a snapshot is; name: see struct snapshot_place, "" for the last one at or before
 * `until`, if there is one. */
int playing_begin(struct player *p, const char *name, uint64_t until, struct err *e);

#endif
