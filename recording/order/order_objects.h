#ifndef RECORDING_ORDER_ORDER_OBJECTS_H
#define RECORDING_ORDER_ORDER_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * What an order encoder knows of each object: a table from an object's name, any 64-bit number, to
 * a state of fixed size. At most UINT32_MAX objects. Memory: the state and some 8 to 30 bytes for
 * each.
 */
struct order_objects {
    struct bytes entries; /* a name and a state each, in the order in which they came */
    struct bytes slots;   /* u32: number of the entry, counted from 1; 0 is empty */
    size_t state_size, count, slot_count;
    uint64_t seed;
};

void order_objects_init(struct order_objects *o, size_t state_size);
void order_objects_free(struct order_objects *o);

/* The object's state, all zeroes when it is new. Valid until the next call. */
void *order_objects_get(struct order_objects *o, uint64_t object);
/* The same, but NULL when it is not there. */
void *order_objects_find(const struct order_objects *o, uint64_t object);

/* Entry number i, counted from 0, of count. */
uint64_t order_objects_name(const struct order_objects *o, size_t i);
void *order_objects_state(const struct order_objects *o, size_t i);

#endif
