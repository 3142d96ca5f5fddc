#ifndef RECORDING_BLOCK_QUEUE_H
#define RECORDING_BLOCK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "recording/format.h"

/*
 * The thread behind a recording writer: it takes raw blocks in order, compresses them and appends
 * them to the file, while the machine runs on. All blocks waiting hold at most about 40 MiB;
 * whoever puts one more waits until there is room again.
 *
 * After the first failed write nothing more is written, the torn block is cut off the file, and
 * every later call says so.
 */
struct block_queue;

/*
 * Start the thread; it writes to fd (at its position, which is `offset`) until
 * block_queue_finish. version: of the file's header. path is for error texts. fd and path stay the
 * caller's and must outlive the queue.
 */
struct block_queue *block_queue_start(int fd, const char *path, uint32_t version, uint64_t offset,
                                      struct err *e);

/* Take one more block that is in the file already into the index and the digest: all of them, in
 * order, before the first block is put. */
void block_queue_resume(struct block_queue *q, const uint8_t header[BLOCK_HEADER_BYTES],
                        const struct block_header *h);

/*
 * Append one block. Takes the bytes over and leaves *raw empty; raw->len is 1 to BLOCK_MAX_RAW.
 * Returns -1 when writing has failed, now or earlier; block_queue_error tells why.
 */
int block_queue_put(struct block_queue *q, enum block_type type, unsigned stream, unsigned items,
                    struct bytes *raw);

/* Wait until at least half of the queue is free, or writing has failed. */
void block_queue_wait_for_room(struct block_queue *q);

/* 0 while all is well, -1 and *e once a write has failed. */
int block_queue_error(struct block_queue *q, struct err *e);

/* Bytes in the file by now. */
uint64_t block_queue_offset(struct block_queue *q);

/* True when at least one EPOCH block is in the file. */
bool block_queue_replayable(struct block_queue *q);

/*
 * Write all that waits, then the INDEX and, last, *end (whose blocks, index and digest fields are
 * filled in here).
 */
int block_queue_finish(struct block_queue *q, struct end_record *end, struct err *e);

/* Stop the thread if it still runs, throw away what waits, free everything. */
void block_queue_destroy(struct block_queue *q);

#endif
