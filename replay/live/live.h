#ifndef REPLAY_LIVE_LIVE_H
#define REPLAY_LIVE_LIVE_H

#include <jansson.h>
#include <stdatomic.h>

#include "recording/places/snapshot_list.h"
#include "replay/live/recorded_machine.h"
#include "replay/player.h"
#include "vmm/machine/machine.h"

/*
 * Going live: a machine that goes on from a place of a recording (`dittovm run --from`). The
 * recording is replayed to there, from its beginning or from a snapshot that holds the devices'
 * state, with devices that follow it (replay/live/shadow.h) and a disk that is the recorded image
 * with what the guest has written to it.
 */
struct live_request {
    struct snapshot_place from;    /* no name: the last sync point */
    const char *output;            /* the recording to be made of it; NULL: none */
    bool overwrite;                /* ... also when there is one */
    const struct disk_wish *disks; /* the recorded machine's images; none: where they were then */
    unsigned disk_count;
    bool check_disk; /* replay from the beginning, so that all it had read is compared */
};

struct live {
    const struct live_request *request;
    struct recording *recording;
    json_t *meta;                /* of the recording (recording/meta.h) */
    uint64_t point;              /* the sync point */
    struct snapshot_entry begin; /* where to begin; one without `live`: at the beginning */
    struct disk_set disks;
    struct disk_doubt doubt;    /* of the disks */
    struct player *playing;     /* while it is played */
    atomic_bool stopped;        /* by live_interrupt() */
    struct machine_state state; /* once it was played */
    struct sync_point arrived;  /* the sync point itself */
};

/* Find recording, place and disk image, and refuse what cannot work. Plays nothing yet. The request
 * must outlive it. */
int live_open(struct live *l, const struct live_request *request, struct err *e);
void live_close(struct live *l);

/* Replay up to the place, showing what the machine put out: state and disk are then those there. */
int live_play(struct live *l, struct err *e);
/* Async-signal-safe: live_play() fails soon. */
void live_interrupt(struct live *l);

/* Make the machine that goes on there: `how` says how it runs, the recording what it is. The disk
 * stays l's. */
int live_machine(struct live *l, const struct machine_config *how, struct machine *m,
                 struct console *console, struct err *e);
/* Have the recorder of a recording that was begun for it ready for machine_run(). */
int live_record(const struct live *l, struct machine *m, struct recorder *recorder, struct err *e);

#endif
