#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Byte strings: a growing buffer to write into, and a cursor that reads a hostile one.
 *
 * Integers are little-endian. "varint" is LEB128 of an unsigned 64-bit value (1 to 10 bytes);
 * "svarint" is a zigzag varint of a signed one.
 */
struct bytes {
    uint8_t *data;
    size_t len, cap;
};

/* All put functions grow the buffer; they abort the process when memory is exhausted. */
void bytes_put(struct bytes *b, const void *data, size_t len);
void bytes_put_u8(struct bytes *b, uint8_t v);
void bytes_put_u16(struct bytes *b, uint16_t v);
void bytes_put_u32(struct bytes *b, uint32_t v);
void bytes_put_u64(struct bytes *b, uint64_t v);
void bytes_put_varint(struct bytes *b, uint64_t v);
void bytes_put_svarint(struct bytes *b, int64_t v);
void bytes_reserve(struct bytes *b, size_t extra);
/* Empty the buffer, keep its memory. */
void bytes_clear(struct bytes *b);
void bytes_free(struct bytes *b);

/*
 * A reading position. A read past the end, or a varint longer than 10 bytes, sets `bad` and yields
 * 0 from then on: read a whole record, then test `bad` once.
 */
struct cursor {
    const uint8_t *p, *end;
    bool bad;
};

struct cursor cursor_of(const void *data, size_t len);
size_t cursor_left(const struct cursor *c);
/* The next len bytes in place, or NULL (and bad) when there are fewer. */
const void *cursor_take(struct cursor *c, size_t len);
/* Copy the next len bytes; zeroes when there are fewer. */
void cursor_get(struct cursor *c, void *out, size_t len);
uint8_t cursor_u8(struct cursor *c);
uint16_t cursor_u16(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
uint64_t cursor_varint(struct cursor *c);
int64_t cursor_svarint(struct cursor *c);

#endif
