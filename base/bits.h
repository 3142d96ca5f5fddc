#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * Bit strings, for numbers that are mostly so small that a byte is too much for each. The first bit
 * is the lowest of the first byte; the last byte is filled up with zeroes.
 *
 * "gamma" is Elias' gamma code of a number from 1 to 2^64 - 1: as many zeroes as it has bits behind
 * its highest one, a one, and those bits, lowest first. 1 takes one bit, 2 and 3 three, 4 to 7
 * five.
 */
struct bit_writer {
    struct bytes *out; /* whole bytes only, until bits_flush() */
    uint8_t last;      /* the byte that is begun */
    unsigned used;     /* bits of it, 0 to 7 */
};

/* The low `count` (0 to 64) bits of value. */
void bits_put(struct bit_writer *w, uint64_t value, unsigned count);
void bits_put_gamma(struct bit_writer *w, uint64_t value);
/* Write the byte that is begun; what follows would begin in the next one. */
void bits_flush(struct bit_writer *w);

/* A position in a bit string that may be hostile. Like a cursor (base/bytes.h), a read past the
 * end, and a gamma code of more than 64 bits, turn it `bad`; from then on all that is read is 0, of
 * gamma codes 1. */
struct bit_reader {
    struct cursor in;
    uint8_t last;
    unsigned left; /* bits of it that are not read yet, 0 to 7 */
    bool bad;
};

struct bit_reader bits_of(const void *data, size_t len);
uint64_t bits_get(struct bit_reader *r, unsigned count);
uint64_t bits_get_gamma(struct bit_reader *r);
/* Whether all whole bytes were read, and what is left of the last one are zeroes. */
bool bits_at_end(const struct bit_reader *r);

#endif
