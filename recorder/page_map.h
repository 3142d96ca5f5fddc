#ifndef RECORDER_PAGE_MAP_H
#define RECORDER_PAGE_MAP_H

#include "base/err.h"
#include "recording/page_copies.h"
#include "recording/snapshot.h"
#include "vmm/kvm/vm.h"

/*
 * Which chunk of its recording each page of a running machine's memory is: for snapshots while it
 * is recorded. What the guest writes KVM logs; what we and the devices write is marked
 * (guest_memory_mark()). Memory: 8 bytes for each page.
 */
struct page_map;

/* Follow a machine's memory from now on. It must outlive the map. */
struct page_map *page_map_create(struct vm *vm, struct err *e);
/* May be NULL. */
void page_map_destroy(struct page_map *map);

/* The chunk of a page before anything runs; 0, the page of zeroes, need not be said. Pages are
 * counted in memory.host. */
void page_map_initial(struct page_map *map, uint64_t page, uint32_t chunk);

/* Copy what was written since the last call. Once the copies are stored, and before the next call,
 * page_map_list() enters the pages that differed from the initial ones then. */
int page_map_take(struct page_map *map, struct page_copies *copies, struct err *e);
void page_map_list(const struct page_map *map, struct snapshot *s);

#endif
