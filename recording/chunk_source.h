#ifndef RECORDING_CHUNK_SOURCE_H
#define RECORDING_CHUNK_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/reader.h"

/*
 * Reads chunks (pages and shorter pieces of memory) of a recording by number, in any order. The
 * blocks used last stay unpacked, 8 of them: at most 8 MiB, with this recorder's blocks 0.5 MiB.
 * One thread's at a time.
 */
struct chunk_source;

/* r must outlive the source. */
struct chunk_source *chunk_source_open(const struct recording *r, struct err *e);
void chunk_source_close(struct chunk_source *s);

/*
 * Copy chunk `id` to page (CHUNK_MAX_BYTES bytes); *len is its length, and the rest of page becomes
 * zero. Chunk 0 is the page of zeroes. An id that the recording does not have, or a damaged block,
 * is STATUS_BAD_RECORDING.
 */
int chunk_read(struct chunk_source *s, uint64_t id, void *page, size_t *len, struct err *e);

/* A page of memory, and the chunk that it is. */
struct page_chunk {
    uint32_t page, chunk;
};

/*
 * Read many pages, to memory + page * CHUNK_MAX_BYTES. In the order of the file, which is many
 * times as fast where their own is another; so `list` comes back in another order.
 */
int chunk_read_pages(struct chunk_source *s, struct page_chunk *list, size_t count, uint8_t *memory,
                     struct err *e);

#endif
