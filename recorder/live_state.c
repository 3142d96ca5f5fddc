#include "recorder/live_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct disk_map {
    struct disk *disk;
    uint32_t *chunk; /* by cluster; of those that were changed. Untouched room costs nothing */
};

struct disk_map *disk_map_create(struct disk *disk, struct err *e)
{
    struct disk_map *map = calloc(1, sizeof *map);

    assert(!disk || disk_is_overlay(disk));
    if (map) {
        map->disk = disk;
        map->chunk = calloc(disk ? disk->size / DISK_CLUSTER + 1 : 1, sizeof *map->chunk);
    }
    if (map && map->chunk)
        return map;
    disk_map_destroy(map);
    err_set(e, STATUS_ERROR, "out of memory");
    return NULL;
}

void disk_map_destroy(struct disk_map *map)
{
    if (map)
        free(map->chunk);
    free(map);
}

/* Put what was written since the last time into the recording. */
static int update(struct disk_map *map, struct chunk_store *chunks, struct err *e)
{
    uint8_t page[DISK_CLUSTER];

    for (uint64_t at = 0; disk_overlay_fresh(map->disk, &at); at += DISK_CLUSTER) {
        const uint64_t left = map->disk->size - at;
        memset(page, 0, sizeof page); /* the last one may be shorter */
        if (disk_read(map->disk, at, page, left < sizeof page ? (size_t)left : sizeof page) < 0)
            return err_set(e, STATUS_ERROR, "cannot read what the guest has written to its disk");
        map->chunk[at / DISK_CLUSTER] = (uint32_t)chunks_add(chunks, page);
    }
    return 0;
}

int disk_map_take(struct disk_map *map, struct chunk_store *chunks, struct bytes *out,
                  struct err *e)
{
    uint64_t next_cluster = 0, next_chunk = 0;

    if (!map->disk)
        return 0;
    if (update(map, chunks, e) < 0)
        return -1;
    for (uint64_t at = 0; disk_overlay_changed(map->disk, &at); at += DISK_CLUSTER) {
        const uint64_t cluster = at / DISK_CLUSTER, chunk = map->chunk[cluster];
        bytes_put_svarint(out, (int64_t)(cluster - next_cluster));
        bytes_put_svarint(out, (int64_t)(chunk - next_chunk));
        next_cluster = cluster + 1;
        next_chunk = chunk + 1;
    }
    return 0;
}

int live_state_take(const struct live_state *state, struct chunk_store *chunks, struct bytes *out,
                    struct err *e)
{
    bytes_put_u8(out, LIVE_STATE_VERSION);
    bytes_put_varint(out, state->devices->len);
    bytes_put(out, state->devices->data, state->devices->len);
    bytes_put_varint(out, state->access->len);
    bytes_put(out, state->access->data, state->access->len);
    return disk_map_take(state->disk, chunks, out, e);
}
