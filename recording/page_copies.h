#ifndef RECORDING_PAGE_COPIES_H
#define RECORDING_PAGE_COPIES_H

#include <stddef.h>
#include <stdint.h>

#include "recording/chunks.h"

/*
 * Pages on their way into a recording: copied at one moment, hashed and stored bit by bit later, so
 * that a machine stands still only while they are copied.
 */
struct page_copies {
    uint8_t *data;          /* the pages, one behind the other */
    uint32_t **to;          /* for each, where the number of its chunk goes */
    size_t count, capacity; /* pages */
    size_t stored;
};

/* Room for one more page (CHUNK_MAX_BYTES), to be filled before the next call. Its chunk's number
 * goes to *to when it is stored, which must be there until then. Out of memory: the process aborts.
 */
uint8_t *page_copies_add(struct page_copies *c, uint32_t *to);

/* Store at most so many of them, the first ones first; returns how many are left. */
size_t page_copies_store(struct page_copies *c, struct chunk_store *chunks, size_t most);

void page_copies_free(struct page_copies *c);

#endif
