#ifndef TESTS_UNIT_RANDOM_H
#define TESTS_UNIT_RANDOM_H

#include <stdlib.h>

#include "base/random.h"

/* So that a failure comes again. */
#define RANDOM_SEED 88172645463325252ull

/* How many rounds of a random test: all in make check-all (LONG=1), the first tenth in others. */
static inline unsigned rounds(unsigned all)
{
    const char *l = getenv("LONG");

    return l && *l ? all : all / 10;
}

#endif
