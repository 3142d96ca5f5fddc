#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Frames of a network on a stream, as QEMU's stream network has them: each has its length in front,
 * 32 bits in network byte order. Here is what waits of such a stream: what was read of it, or is
 * still to be written.
 */
#define WIRE_LENGTH_BYTES 4u
#define WIRE_BYTES        (256u << 10) /* several of the longest frames */

/* Zeroed at first. */
struct wire_queue {
    size_t start, len; /* of what waits, in bytes */
    size_t skip;       /* of a frame that is too long, so many bytes are still to come */
    uint8_t bytes[WIRE_BYTES];
};

/* How many bytes can be added. */
size_t wire_room(const struct wire_queue *q);
/* Add len bytes, at most as many. */
void wire_add(struct wire_queue *q, const void *data, size_t len);
/* The bytes, and to take the first len of them away. */
static inline const uint8_t *wire_bytes(const struct wire_queue *q)
{
    return q->bytes + q->start;
}
void wire_remove(struct wire_queue *q, size_t len);
/* The first whole frame, of 1 to FRAME_MAX bytes; NULL: there is none. What is no frame before it
 * is dropped. Valid until the next call. */
const uint8_t *wire_first(struct wire_queue *q, size_t *len);
/* Drop that one. */
void wire_drop(struct wire_queue *q);

#endif
