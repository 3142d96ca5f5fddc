#include "recording/order/order_objects.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define FIRST_SLOTS 64u /* a power of two, as it stays; at most half of them are in use */

static size_t entry_size(const struct order_objects *o)
{
    return sizeof(uint64_t) + o->state_size;
}

static uint32_t *slot_at(const struct order_objects *o, size_t i)
{
    return (uint32_t *)(void *)o->slots.data + i;
}

/* Append len zeroes. */
static void put_zeroes(struct bytes *b, size_t len)
{
    bytes_reserve(b, len);
    memset(b->data + b->len, 0, len);
    b->len += len;
}

static void make_slots(struct order_objects *o, size_t count)
{
    bytes_clear(&o->slots);
    put_zeroes(&o->slots, count * sizeof(uint32_t));
    o->slot_count = count;
}

void order_objects_init(struct order_objects *o, size_t state_size)
{
    /* So that every state is aligned as 64-bit words want it. */
    *o = (struct order_objects){.state_size = (state_size + 7) & ~(size_t)7};
    /* The names come out of files. Where the kernel has no random bytes the table is right all the
     * same, but could be made slow by names that somebody chose. */
    if (getrandom(&o->seed, sizeof o->seed, GRND_NONBLOCK) != sizeof o->seed)
        o->seed = 0;
    make_slots(o, FIRST_SLOTS);
}

void order_objects_free(struct order_objects *o)
{
    bytes_free(&o->entries);
    bytes_free(&o->slots);
    o->count = 0;
}

uint64_t order_objects_name(const struct order_objects *o, size_t i)
{
    uint64_t name;

    assert(i < o->count);
    memcpy(&name, o->entries.data + i * entry_size(o), sizeof name);
    return name;
}

void *order_objects_state(const struct order_objects *o, size_t i)
{
    assert(i < o->count);
    return o->entries.data + i * entry_size(o) + sizeof(uint64_t);
}

/* The slot that holds the object, or the empty one where it belongs. */
static uint32_t *find_slot(const struct order_objects *o, uint64_t object)
{
    size_t i = XXH3_64bits_withSeed(&object, sizeof object, o->seed) & (o->slot_count - 1);

    while (*slot_at(o, i) && order_objects_name(o, *slot_at(o, i) - 1) != object)
        i = (i + 1) & (o->slot_count - 1);
    return slot_at(o, i);
}

static void grow(struct order_objects *o)
{
    make_slots(o, 2 * o->slot_count);
    for (size_t i = 0; i < o->count; i++)
        *find_slot(o, order_objects_name(o, i)) = (uint32_t)(i + 1);
}

void *order_objects_find(const struct order_objects *o, uint64_t object)
{
    const uint32_t slot = *find_slot(o, object);

    return slot ? order_objects_state(o, slot - 1) : NULL;
}

void *order_objects_get(struct order_objects *o, uint64_t object)
{
    uint32_t *slot = find_slot(o, object);

    if (*slot)
        return order_objects_state(o, *slot - 1);
    assert(o->count < UINT32_MAX);
    bytes_put(&o->entries, &object, sizeof object);
    put_zeroes(&o->entries, o->state_size);
    *slot = (uint32_t)++o->count;
    const size_t i = o->count - 1;
    if (2 * o->count > o->slot_count)
        grow(o);
    return order_objects_state(o, i);
}
