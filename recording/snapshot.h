#ifndef RECORDING_SNAPSHOT_H
#define RECORDING_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "recording/cpu_state.h"
#include "recording/event.h"
#include "recording/streams.h"

/*
 * A snapshot in a recording: the state of the machine at a sync point, before the events there.
 * A replay may begin at one, and its timeline takes them as checkpoints.
 *
 * Each is one record of STREAM_SNAPSHOTS, after the varint number of its bytes:
 *
 *   u8 length, name
 *   varint chunks that the recording got for it
 *   varint bytes of `live`
 *   the mark, all of it (snapshot.c)
 *   pages: varint number of runs, varint number of pages; for each run
 *     varint  page - first one behind the last run (at first 0)
 *     varint  pages in the run * 2, + 1 when all of them are the same chunk
 *     svarint chunk - chunk behind the last one (at first 0)
 *   the bytes of `live`
 *
 * Pages are counted in the RAM there is, without the hole below 4 GiB.
 */

/*
 * The state of a replay but for the guest's memory, at any place where player_run() or
 * player_step() returned (not after player_interrupt()). Restoring one, with its memory, brings the
 * replay back.
 */
struct cpu_mark {
    struct vcpu_state state;
    struct vcpu_pending pending;
    bool window;
    struct sync_point last_sync;
    uint64_t branches;
    bool without_x87_last; /* of a recording before format 20 */
};

struct player_mark {
    struct cpu_mark cpus[MAX_VCPUS];
    unsigned cpu_count, cpu; /* cpu: the one that runs */
    bool at_sync;
    uint64_t at[STREAM_KINDS]; /* offsets in the streams */
    struct event_codec codec;
    uint64_t ordinal, tsc;
    struct gp_hook hook;
    uint64_t outputs;
    bool dlab, loopback;
};

/* Pages one behind the other, in chunks one behind the other, or all in the same one. */
struct page_run {
    uint32_t page, count, chunk;
    bool same;
};

#define SNAPSHOT_NAME_MAX  63u
#define SNAPSHOT_MAX_BYTES (256u << 20) /* of a record: what bounds a reader's memory */
#define SNAPSHOT_LIVE_MAX  (128u << 20) /* of `live`: a disk with some 256 GiB that were written */
#define SNAPSHOTS_MAX      65536u       /* in a recording, for the same reason */
/* All before the runs takes less. */
#define SNAPSHOT_HEAD_MAX 16384u

struct snapshot {
    char name[SNAPSHOT_NAME_MAX + 1];
    uint64_t new_chunks;
    struct player_mark mark;
    /* The pages that differ from the initial image, in ascending order. */
    struct page_run *runs;
    size_t run_count, run_capacity;
    uint64_t pages;    /* in all of them */
    struct bytes live; /* devices and disk, for going live from here (recorder/live_state.h); empty:
                          that is not known, and a machine is replayed to here from before */
};

/* 1 to SNAPSHOT_NAME_MAX letters, digits or '.', '_', '+', '-'. */
bool snapshot_name_valid(const char *name);

/* Enter a page, behind all that were entered. Out of memory: the process aborts. */
void snapshot_add_page(struct snapshot *s, uint32_t page, uint32_t chunk);
/* The chunk of a page; false when it is that of the initial image. */
bool snapshot_find_page(const struct snapshot *s, uint32_t page, uint32_t *chunk);
void snapshot_free(struct snapshot *s);

/* Do without `live` where it is longer than SNAPSHOT_LIVE_MAX. */
void snapshot_bound_live(struct snapshot *s);
/* Append the record, its length included. The mark must be at a sync point, not the 0th; `live` is
 * bounded. */
void snapshot_encode(struct bytes *out, const struct snapshot *s);

/* How much there is in a record. */
struct snapshot_size {
    uint64_t runs, live; /* live: bytes, the record's last ones */
};
/*
 * Decode what the record says of itself, up to the numbers of runs and pages: runs and live stay
 * empty. Or all of it. The cursor begins behind the record's length; the whole record must be in
 * it, but for the head. False when it makes no sense; s is then empty. What only the recording can
 * tell (whether there are such pages, chunks and stream offsets) is the caller's to check.
 */
bool snapshot_decode_head(struct cursor *in, struct snapshot *s, struct snapshot_size *size);
bool snapshot_decode(struct cursor *in, struct snapshot *s);

#endif
