#ifndef RECORDER_LIVE_STATE_H
#define RECORDER_LIVE_STATE_H

#include "base/bytes.h"
#include "base/err.h"
#include "devices/disk/disk.h"
#include "recording/page_copies.h"

/*
 * What a recording holds for a machine that is to go on, live, from a place in it, besides CPU and
 * memory: its devices, and what it has written to its disk. A snapshot's `live`
 * (recording/snapshot.h) is
 *
 *   u8      LIVE_STATE_VERSION
 *   varint  length, the bytes of pc_save() (devices/pc.h)
 *   varint  length, the data of the sync point's access, when the devices have not served it yet
 *           (replay/live/shadow.h); otherwise 0
 *   to the end, for each 4 KiB cluster that was written to:
 *     svarint cluster - one behind the last one (at first 0)
 *     svarint chunk - one behind the last one (at first 0)
 *
 * and the initial state of a machine has its devices and clusters in two streams
 * (recording/streams.h).
 */
#define LIVE_STATE_VERSION 1u

/*
 * Which chunk of a recording each changed cluster of a disk is: so that only what was written since
 * the last time is looked at. Memory: 4 bytes for each cluster up to the last one that was changed,
 * where clusters around it were.
 */
struct disk_map;

/* disk: an overlay (disk_is_overlay()), which must outlive the map; or NULL, for a machine that has
 * none. */
struct disk_map *disk_map_create(struct disk *disk, struct err *e);
void disk_map_destroy(struct disk_map *map); /* may be NULL */

/*
 * Copy what was written since the last call. chunks: store each copy at once; NULL: that is the
 * caller's, later. Once they are stored, and before the next call, disk_map_list() appends the list
 * of clusters that there were then.
 */
int disk_map_take(struct disk_map *map, struct page_copies *copies, struct chunk_store *chunks,
                  struct err *e);
void disk_map_list(const struct disk_map *map, struct bytes *out);

/* Append what is before the list: bytes as above; access may be empty. */
void live_state_begin(struct bytes *out, const struct bytes *devices, const struct bytes *access);

/* All of it, at once. */
struct live_state {
    const struct bytes *devices, *access;
    struct disk_map *disk;
};
int live_state_take(const struct live_state *state, struct chunk_store *chunks, struct bytes *out,
                    struct err *e);

#endif
