#ifndef TESTS_UNIT_RANDOM_H
#define TESTS_UNIT_RANDOM_H

#include <stdint.h>

/* Marsaglia's xorshift64: the same numbers on every host, so that a failure comes again. The state
 * is a seed at first, and never 0. */
#define RANDOM_SEED 88172645463325252ull

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
