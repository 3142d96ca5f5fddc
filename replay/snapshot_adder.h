#ifndef REPLAY_SNAPSHOT_ADDER_H
#define REPLAY_SNAPSHOT_ADDER_H

#include "recording/chunks.h"
#include "recording/writer.h"
#include "replay/player.h"

/*
 * Puts snapshots of a replay into a recording that is finished. Until snapshot_adder_finish() the
 * file is to readers as it was; nobody else can add to it meanwhile.
 */
struct snapshot_adder {
    struct recording *recording; /* as the file was when it was opened */
    struct recording_writer *writer;
    struct chunk_store *chunks;
    struct snapshot_list list; /* with those that were added */
    struct end_record end;
    size_t added;
};

/* What a snapshot holds for who goes live from there, of which a replay knows nothing: appended to
 * *out, and what is on a disk as chunks. */
struct snapshot_live {
    int (*take)(const struct snapshot_live *live, struct chunk_store *chunks, struct bytes *out,
                struct err *e);
};

int snapshot_adder_open(struct snapshot_adder *a, const char *path, struct err *e);

/* A snapshot where the replay stands, which is a sync point but the 0th, before the events there.
 * name: what it is called, NULL: a number. live: NULL when there is nothing that follows the
 * replay. *made is what `info` says of it. */
int snapshot_adder_put(struct snapshot_adder *a, struct player *p, const char *name,
                       const struct snapshot_live *live, struct snapshot_entry *made,
                       struct err *e);

/* The end, whatever they return. */
int snapshot_adder_finish(struct snapshot_adder *a, struct err *e);
void snapshot_adder_abort(struct snapshot_adder *a);

#endif
