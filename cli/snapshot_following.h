#ifndef CLI_SNAPSHOT_FOLLOWING_H
#define CLI_SNAPSHOT_FOLLOWING_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/kernel_code.h"
#include "recording/snapshot_list.h"
#include "replay/live/shadow.h"
#include "replay/player.h"
#include "replay/snapshot_adder.h"

struct snapshot_options {
    struct snapshot_place place;
    uint64_t at;    /* 0: the last sync point */
    uint64_t every; /* sync points; 0: one snapshot only */
    uint64_t last;  /* sync point of the recording */
    const char *name, *disk;
    const struct clock_ops *clock;
    bool quiet;
};

/* Devices and disk that follow a replay, so that its snapshots hold them, too: zeroed at first. */
struct following {
    struct shadow *shadow; /* NULL: nobody follows */
    struct disk_set disks;
    struct disk_map *map;
    struct kernel_code code; /* as the recording describes it */
};

/* Begin as near to o->at as can be; with devices where they can be had. That they cannot is an
 * error only where the image was named. */
int following_begin(struct following *f, struct player *p, const struct snapshot_options *o,
                    struct err *e);
/* Play on, to before the access at that sync point; where the devices turn out not to be those that
 * were recorded, without them. */
int following_play(struct following *f, struct player *p, uint64_t at,
                   const struct snapshot_options *o, struct err *e);
/* Add a snapshot of where the replay stands. */
int following_take(struct following *f, struct player *p, struct snapshot_adder *a,
                   const struct snapshot_options *o, struct snapshot_entry *made, struct err *e);
/* Nobody follows any more; may be called again. */
void following_end(struct following *f);

#endif
