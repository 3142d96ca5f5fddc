#include "guest-tools/litmus/litmus.h"

/*
 * Ditto's microbenchmark: each CPU increments random counters without any synchronisation, so that
 * increments are lost.
 *
 *   accesses  of each CPU
 *   loads     plain loads for each increment (a load and a store)
 *   counters  a page holds
 *   objects   pages of shared counters
 *   shared    how many of a million accesses go to them; the others go to counters of the CPU's own
 *   window    passes of dawdle() between the load and the store of an increment
 */
#define COUNTERS_MAX (PAGE_BYTES / 8)
#define OBJECTS_MAX  256
#define MILLION      1000000

struct object {
    OWN_PAGE volatile uint64_t counter[COUNTERS_MAX];
};

static struct object shared[OBJECTS_MAX], own[CPUS_MAX];
static unsigned accesses, loads, counters, objects, shared_share, window;

enum { SHARED_INCREMENTS, INCREMENTS, LOADS };

static void prepare(void)
{
    accesses = (unsigned)parameter("accesses", 100000);
    loads = (unsigned)parameter("loads", 1);
    counters = (unsigned)parameter("counters", 8);
    objects = (unsigned)parameter("objects", 1);
    shared_share = (unsigned)parameter("shared", MILLION);
    window = (unsigned)parameter("window", 10);
    if (!counters || counters > COUNTERS_MAX || !objects || objects > OBJECTS_MAX)
        refuse("counters= is 1 to 512, objects= 1 to 256");
}

static void work(struct worker *w)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < accesses; i++) {
        const bool mine = random_below(w, MILLION) >= shared_share;
        struct object *object = mine ? &own[w->number] : &shared[random_below(w, objects)];
        volatile uint64_t *counter = &object->counter[random_below(w, counters)];
        const bool store = random_below(w, loads + 1) == 0;
        const uint64_t value = *counter;

        if (store && window)
            dawdle(w, window);
        if (store)
            *counter = value + 1;
        sum = mix(sum, value);
        w->count[INCREMENTS] += store;
        w->count[SHARED_INCREMENTS] += store && !mine;
        w->count[LOADS] += !store;
    }
    note(w, sum);
}

static bool check(void)
{
    const uint64_t made = sum(SHARED_INCREMENTS);
    uint64_t there = 0;

    for (unsigned i = 0; i < objects; i++)
        for (unsigned j = 0; j < counters; j++)
            there += shared[i].counter[j];
    count("loads", sum(LOADS));
    count("increments", sum(INCREMENTS));
    count("lost", made - there);
    return there == made;
}

struct litmus litmus = {"increments", prepare, work, check};
