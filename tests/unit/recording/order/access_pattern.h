#ifndef TESTS_UNIT_RECORDING_ORDER_ACCESS_PATTERN_H
#define TESTS_UNIT_RECORDING_ORDER_ACCESS_PATTERN_H

#include <assert.h>
#include <string.h>

#include "recording/order/access.h"
#include "recording/order/order_objects.h"
#include "tests/unit/random.h"

/*
 * Accesses of vCPUs to shared counters, made up as Ditto's microbenchmark makes them:
 * unsynchronized, at random. Used by the tests of the order logs and by the tool that writes them
 * out.
 */
struct access_pattern {
    unsigned vcpus;    /* 1 to MAX_VCPUS */
    unsigned accesses; /* of each vCPU */
    unsigned objects;  /* that are shared, at least 1 */
    unsigned loads;    /* of 1000 accesses */
    unsigned own;      /* of 1000 accesses, those to an object that is the vCPU's alone */
    unsigned again;    /* of 1000 accesses, those to the object that the vCPU accessed last */
    unsigned turn;     /* accesses until the next vCPU's turn; 0: after each a random one's */
    unsigned work;     /* not 0: whose turn it is follows from the time between two accesses of a
                          vCPU, at random up to twice so many points, */
    unsigned idle;     /* in so many of 1000 cases 100 times as long; points are times then */
    bool transitions;  /* only those that change who may access (recording/order/access.h) */
};

struct page_owners {
    uint8_t readers, writer; /* bits of vCPUs */
};

/* Whether page ownership lets a vCPU do it without asking; then it is so afterwards. */
static inline bool pattern_is_owned(struct order_objects *pages, const struct access *a)
{
    struct page_owners *page = order_objects_get(pages, a->object);
    const uint8_t bit = (uint8_t)(1u << a->vcpu);

    if ((page->writer & bit) || (!a->store && (page->readers & bit)))
        return true;
    if (a->store)
        *page = (struct page_owners){.readers = bit, .writer = bit};
    else
        *page = (struct page_owners){.readers = (uint8_t)(page->readers | bit)};
    return false;
}

static inline bool pattern_chance(uint64_t *random, unsigned of_1000)
{
    return random_next(random) % 1000 < of_1000;
}

/* The vCPU that is to go on next. */
static inline unsigned pattern_turn(const struct access_pattern *p, const unsigned *left,
                                    const uint64_t *time, unsigned last, unsigned *turn,
                                    uint64_t *random)
{
    unsigned vcpu = last;

    if (p->work) {
        for (unsigned i = 0; i < p->vcpus; i++)
            if (left[i] && (!left[vcpu] || time[i] < time[vcpu]))
                vcpu = i;
        return vcpu;
    }
    if (!p->turn)
        vcpu = (unsigned)(random_next(random) % p->vcpus);
    else if ((*turn)++ % p->turn == 0)
        vcpu++;
    for (vcpu %= p->vcpus; !left[vcpu];)
        vcpu = (vcpu + 1) % p->vcpus;
    return vcpu;
}

/* *list is empty at first, and the caller's to free. */
static inline void pattern_make(const struct access_pattern *p, uint64_t seed,
                                struct access_list *list)
{
    unsigned left[MAX_VCPUS], vcpu = 0, turn = 0;
    uint64_t last[MAX_VCPUS] = {0}, time[MAX_VCPUS] = {0},
             random = seed * 0x9e3779b97f4a7c15ull | 1;
    uint64_t sum = (uint64_t)p->vcpus * p->accesses;
    struct order_objects pages;

    assert(p->vcpus >= 1 && p->vcpus <= MAX_VCPUS && p->objects >= 1);
    list->vcpus = p->vcpus;
    order_objects_init(&pages, sizeof(struct page_owners));
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        left[i] = p->accesses;
    for (; sum; sum--) {
        vcpu = pattern_turn(p, left, time, vcpu, &turn, &random);
        struct access a = {.vcpu = (uint8_t)vcpu,
                           .point = p->accesses - left[vcpu]--,
                           .store = !pattern_chance(&random, p->loads),
                           .object = 1 + random_next(&random) % p->objects};
        if (pattern_chance(&random, p->own))
            a.object = 1000000 + vcpu;
        else if (last[vcpu] && pattern_chance(&random, p->again))
            a.object = last[vcpu];
        last[vcpu] = a.object;
        if (p->work) {
            a.point = time[vcpu];
            time[vcpu] += (1 + random_next(&random) % (2 * p->work)) *
                          (pattern_chance(&random, p->idle) ? 100 : 1);
        }
        if (!p->transitions || !pattern_is_owned(&pages, &a))
            assert(access_list_add(list, &a) == 0);
    }
    order_objects_free(&pages);
}

#endif
