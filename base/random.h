#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* Marsaglia's xorshift64: the same numbers on every host, after a seed. That is the state at first,
 * and never 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
