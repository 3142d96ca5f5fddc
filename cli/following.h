#ifndef CLI_FOLLOWING_H
#define CLI_FOLLOWING_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/kernel_code.h"
#include "recording/places/snapshot_list.h"
#include "replay/live/shadow.h"
#include "replay/player.h"
#include "replay/snapshot_adder.h"

/* What is to follow a replay. */
struct following_request {
    const char *recording;         /* as it was given */
    const struct disk_wish *disks; /* where the recorded machine's images are now */
    unsigned disk_count;           /* 0: where they were */
    bool required;                 /* that nobody can follow is an error */
    bool disk_only; /* it is for what is on the disks, which a kexec does not take from anybody */
    bool quiet;
};

/* Devices and disks that follow a replay: zeroed at first. */
struct following {
    const struct following_request *request;
    struct shadow *shadow; /* NULL: nobody follows */
    struct disk_set disks;
    struct disk_map *map;
    struct kernel_code code; /* as the recording describes it */
};

/* Begin as near to sync point `at` (UINT64_MAX: the end) as can be; with devices where they can be
 * had. The request must outlive it. */
int following_begin(struct following *f, struct player *p, const struct following_request *request,
                    uint64_t at, struct err *e);
/* Play on, to before the access at that sync point; where the devices turn out not to be those that
 * were recorded, without them. */
int following_play(struct following *f, struct player *p, uint64_t at, struct err *e);
/* Add a snapshot of where the replay stands; name: as snapshot_adder_put() has it. */
int following_take(struct following *f, struct player *p, struct snapshot_adder *a,
                   const char *name, struct snapshot_entry *made, struct err *e);
/* Nobody follows any more; may be called again. */
void following_end(struct following *f);

/* One more image of --disk, IMG, among the `count` that there are. */
int following_name_disk(struct disk_wish disks[MAX_DISKS], unsigned *count, const char *image,
                        struct err *e);

#endif
