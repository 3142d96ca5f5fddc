#include "recorder/page_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct page_map {
    struct vm *vm;
    uint32_t *initial, *now; /* chunks, by page */
    uint64_t *written;       /* since the last call, one bit a page */
    uint64_t pages;
};

struct page_map *page_map_create(struct vm *vm, struct err *e)
{
    struct page_map *map = calloc(1, sizeof *map);
    const uint64_t pages = vm->memory.size / PAGE_BYTES;

    if (map) {
        *map = (struct page_map){
            .vm = vm,
            .initial = calloc(pages, sizeof *map->initial),
            .now = calloc(pages, sizeof *map->now),
            .written = calloc(vm_bitmap_words(vm), sizeof *map->written),
            .pages = pages,
        };
    }
    if (!map || !map->initial || !map->now || !map->written) {
        err_set(e, STATUS_ERROR, "out of memory");
        page_map_destroy(map);
        return NULL;
    }
    assert(!vm->memory.marked);
    vm->memory.marked = map->written;
    if (vm_log_writes(vm, true, e) < 0) {
        page_map_destroy(map);
        return NULL;
    }
    return map;
}

void page_map_destroy(struct page_map *map)
{
    struct err ignored;

    if (!map)
        return;
    if (map->written && map->vm->memory.marked == map->written) {
        map->vm->memory.marked = NULL;
        vm_log_writes(map->vm, false, &ignored);
    }
    free(map->initial);
    free(map->now);
    free(map->written);
    free(map);
}

void page_map_initial(struct page_map *map, uint64_t page, uint32_t chunk)
{
    assert(page < map->pages);
    map->initial[page] = map->now[page] = chunk;
}

int page_map_take(struct page_map *map, struct page_copies *copies, struct err *e)
{
    const uint8_t *memory = map->vm->memory.host;

    if (vm_collect_writes(map->vm, map->written, e) < 0)
        return -1;
    for (uint64_t page = 0; bitmap_next(map->written, vm_bitmap_words(map->vm), &page); page++)
        memcpy(page_copies_add(copies, &map->now[page]), memory + page * PAGE_BYTES, PAGE_BYTES);
    memset(map->written, 0, vm_bitmap_words(map->vm) * sizeof *map->written);
    return 0;
}

void page_map_list(const struct page_map *map, struct snapshot *s)
{
    for (uint64_t page = 0; page < map->pages; page++)
        if (map->now[page] != map->initial[page])
            snapshot_add_page(s, (uint32_t)page, map->now[page]);
}
