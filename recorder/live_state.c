#include "recorder/live_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mmu/digest.h"

struct disk_map {
    struct disk *disk;
    uint32_t *chunk;    /* by cluster; of those that were taken. Untouched room costs nothing */
    uint64_t *clusters; /* that were changed at the last disk_map_take() */
    size_t count, capacity;
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
    if (!map)
        return;
    free(map->chunk);
    free(map->clusters);
    free(map);
}

/* The numbers of all that were written to. */
static void note_clusters(struct disk_map *map)
{
    map->count = 0;
    for (uint64_t at = 0; disk_overlay_changed(map->disk, &at); at += DISK_CLUSTER) {
        if (map->count == map->capacity) {
            map->capacity += map->capacity / 2 + 256;
            map->clusters = realloc(map->clusters, map->capacity * sizeof *map->clusters);
            if (!map->clusters) {
                fprintf(stderr, "dittovm: out of memory\n");
                abort();
            }
        }
        map->clusters[map->count++] = at / DISK_CLUSTER;
    }
}

/* Zeroes are no copies: a guest may discard gigabytes at once. */
int disk_map_take(struct disk_map *map, struct page_copies *copies, struct chunk_store *chunks,
                  struct err *e)
{
    if (!map->disk)
        return 0;
    for (uint64_t at = 0; disk_overlay_fresh(map->disk, &at); at += DISK_CLUSTER) {
        const uint64_t left = map->disk->size - at;
        uint8_t cluster[DISK_CLUSTER] = {0}; /* the last one may be shorter */
        if (disk_read(map->disk, at, cluster, left < DISK_CLUSTER ? (size_t)left : DISK_CLUSTER) <
            0)
            return err_set(e, STATUS_ERROR, "cannot read what the guest has written to its disk");
        map->chunk[at / DISK_CLUSTER] = CHUNK_ZERO_PAGE;
        if (page_is_zero(cluster))
            continue;
        memcpy(page_copies_add(copies, &map->chunk[at / DISK_CLUSTER]), cluster, DISK_CLUSTER);
        if (chunks)
            page_copies_store(copies, chunks, 1);
    }
    note_clusters(map);
    return 0;
}

void disk_map_list(const struct disk_map *map, struct bytes *out)
{
    uint64_t next_cluster = 0, next_chunk = 0;

    for (size_t i = 0; i < map->count; i++) {
        const uint64_t cluster = map->clusters[i], chunk = map->chunk[cluster];
        bytes_put_svarint(out, (int64_t)(cluster - next_cluster));
        bytes_put_svarint(out, (int64_t)(chunk - next_chunk));
        next_cluster = cluster + 1;
        next_chunk = chunk + 1;
    }
}

void live_state_begin(struct bytes *out, const struct bytes *devices, const struct bytes *access)
{
    bytes_put_u8(out, LIVE_STATE_VERSION);
    bytes_put_varint(out, devices->len);
    bytes_put(out, devices->data, devices->len);
    bytes_put_varint(out, access->len);
    bytes_put(out, access->data, access->len);
}

int live_state_take(const struct live_state *state, struct chunk_store *chunks, struct bytes *out,
                    struct err *e)
{
    struct page_copies copies = {0};
    int rc = disk_map_take(state->disk, &copies, chunks, e);

    page_copies_free(&copies);
    if (rc == 0) {
        live_state_begin(out, state->devices, state->access);
        disk_map_list(state->disk, out);
    }
    return rc;
}
