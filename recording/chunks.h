#ifndef RECORDING_CHUNKS_H
#define RECORDING_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/writer.h"

/*
 * Puts pages and shorter pieces of memory into a recording, equal ones once.
 *
 * Equality is judged by a 128-bit XXH3 under a secret that is drawn anew for each store, so a guest
 * cannot prepare two pages that are taken for one another. The table takes 21 to 27 bytes of memory
 * for each different chunk.
 */
struct chunk_store;

/* The store alone puts chunks into w, which must outlive it. Threads may add at the same time. */
struct chunk_store *chunks_create(struct recording_writer *w, struct err *e);
void chunks_destroy(struct chunk_store *s);

/*
 * The number of this page (CHUNK_MAX_BYTES bytes), which is put into the recording unless it is
 * known. The page of zeroes is CHUNK_ZERO_PAGE and takes no room.
 */
uint64_t chunks_add(struct chunk_store *s, const void *page);

/*
 * The same for 1 to CHUNK_MAX_BYTES bytes. A piece is never equal to one of another length. When
 * the recording can take no more chunks, returns CHUNK_ZERO_PAGE; writer_epoch reports it.
 */
uint64_t chunks_add_piece(struct chunk_store *s, const void *data, size_t len);

/* Enter a chunk that a recording which is added to has already: the next one by its number, from 1
 * on. All of them come before any other call. */
void chunks_know(struct chunk_store *s, const void *data, size_t len);

/* How many chunks were asked to be added, and how many there are, known ones included. */
uint64_t chunks_added(const struct chunk_store *s);
uint64_t chunks_stored(const struct chunk_store *s);

#endif
