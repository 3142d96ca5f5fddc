#ifndef RECORDING_STREAM_READER_H
#define RECORDING_STREAM_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/reader.h"

/*
 * Reads one stream of a recording as one run of bytes; where its blocks begin and end does not
 * show. At most one block is unpacked at a time, and before it what is left of the one before.
 *
 * Like a cursor (base/bytes.h) it turns `bad` on a read past the end, on a varint that is none and
 * on a damaged block, yields zeroes from then on, and stays where it is; test once a whole record
 * was read. Any number of readers may read one recording; each is one thread's at a time.
 */
struct stream_reader;

#define STREAM_MAX_PEEK (1u << 20)

/* Begin at the start of the stream (below STREAM_COUNT), which may be empty. r must outlive it. */
struct stream_reader *stream_open(const struct recording *r, unsigned stream, struct err *e);
void stream_close(struct stream_reader *s);

/*
 * The next bytes, in place: at least n of them (at most STREAM_MAX_PEEK), or all that are left when
 * there are fewer; *got says how many there are. The position stays. Valid until the next call with
 * this reader. Turns bad, with *got 0, only when a block is damaged.
 */
const uint8_t *stream_peek(struct stream_reader *s, size_t n, size_t *got);
/* Go forward by n bytes; past the end is bad. */
void stream_skip(struct stream_reader *s, uint64_t n);

/* Copy the next n bytes. 0; or -1, bad, and zeroes in buf when there are not so many. */
int stream_read(struct stream_reader *s, void *buf, size_t n);
uint8_t stream_u8(struct stream_reader *s);
uint64_t stream_varint(struct stream_reader *s);
int64_t stream_svarint(struct stream_reader *s);

/* Raw bytes from here to the end; 0 once bad. */
uint64_t stream_left(const struct stream_reader *s);
/* Raw bytes before this position. */
uint64_t stream_tell(const struct stream_reader *s);
/* Go to a raw offset, 0 to the stream's length (beyond is bad). Makes a bad reader good again. */
void stream_seek(struct stream_reader *s, uint64_t offset);

bool stream_bad(const struct stream_reader *s);
/* 0 while the reader is good; otherwise -1, and *e says what is wrong, and where. */
int stream_error(const struct stream_reader *s, struct err *e);

#endif
