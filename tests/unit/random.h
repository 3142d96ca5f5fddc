#ifndef TESTS_UNIT_RANDOM_H
#define TESTS_UNIT_RANDOM_H

#include "base/random.h"

/* So that a failure comes again. */
#define RANDOM_SEED 88172645463325252ull

#endif
