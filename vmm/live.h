#ifndef VMM_LIVE_H
#define VMM_LIVE_H

#include <jansson.h>

#include "replay/player.h"
#include "vmm/machine.h"
#include "vmm/run_options.h"

/*
 * Going live: a machine that goes on from a place of a recording (`dittovm run --from`). The
 * recording is replayed to there, from its beginning or from a snapshot that holds the devices'
 * state, with devices that follow it (vmm/shadow.h) and a disk that is the recorded image with what
 * the guest has written to it.
 */
struct live {
    const struct run_options *options;
    struct recording *recording;
    json_t *description;         /* of the recording (vmm/description.h) */
    uint64_t point;              /* the sync point */
    struct snapshot_entry begin; /* where to begin; one without `live`: at the beginning */
    const char *image;           /* of the disk; NULL: there is none */
    struct disk *disk;
    struct player *playing;     /* while it is played */
    struct machine_state state; /* once it was played */
};

/* Find recording, place and disk image, and refuse what cannot work. Plays nothing yet. */
int live_open(struct live *l, const struct run_options *o, struct err *e);
void live_close(struct live *l);

/* Replay up to the place, showing what the machine put out: state and disk are then those there. */
int live_play(struct live *l, struct err *e);
/* Async-signal-safe: live_play() fails soon. */
void live_interrupt(struct live *l);

/* Make the machine that goes on there. The disk stays l's. */
int live_machine(struct live *l, struct machine *m, struct console *console, struct err *e);
/* The recorder of it, if one is asked for: its recording is ready for machine_run(). */
struct recorder *live_record(const struct live *l, struct machine *m, struct err *e);

#endif
