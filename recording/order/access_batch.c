#include "recording/order/access_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "recording/order/order_objects.h"

/* When each vCPU has accessed an object last: positions in the list, counted from 1; 0 is never. */
struct history {
    size_t last[MAX_VCPUS];
};

/* More than a vCPU gets together. What follows each other for longer is sorted in pieces. */
#define BATCH_MAX 64

struct member {
    struct access access;
    size_t others; /* when another vCPU has accessed the object last */
    size_t place;  /* in the batch */
};

static size_t last_of_others(const struct order_objects *objects, const struct access *a)
{
    const struct history *history = order_objects_find(objects, a->object);
    size_t last = 0;

    for (unsigned i = 0; history && i < MAX_VCPUS; i++)
        if (i != a->vcpu && history->last[i] > last)
            last = history->last[i];
    return last;
}

/* Newest first; what is as new, as all accesses of one object are, in the order that it has. */
static int compare(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->others != y->others)
        return x->others > y->others ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Accesses of one object behind each other become one; returns how many are left. */
static size_t merge(struct access *at, size_t count)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        if (left && at[left - 1].object == at[i].object)
            at[left - 1].store |= at[i].store;
        else
            at[left++] = at[i];
    }
    return left;
}

/* Sort and merge one batch; returns how many are left. */
static size_t sort_batch(const struct order_objects *objects, struct access *at, size_t count)
{
    struct member members[BATCH_MAX];

    assert(count <= BATCH_MAX);
    for (size_t i = 0; i < count; i++)
        members[i] = (struct member){at[i], last_of_others(objects, &at[i]), i};
    qsort(members, count, sizeof *members, compare);
    for (size_t i = 0; i < count; i++)
        at[i] = members[i].access;
    return merge(at, count);
}

void access_list_sort_batches(struct access_list *list)
{
    struct order_objects objects;
    size_t left = 0;

    order_objects_init(&objects, sizeof(struct history));
    for (size_t i = 0, next; i < list->count; i = next) {
        struct access *batch = &list->at[i];
        for (next = i + 1; next < list->count && next - i < BATCH_MAX; next++)
            if (list->at[next].vcpu != batch->vcpu || list->at[next].point != batch->point)
                break;
        const size_t count = sort_batch(&objects, batch, next - i);
        for (size_t j = 0; j < count; j++) {
            struct history *history = order_objects_get(&objects, batch[j].object);
            list->at[left++] = batch[j];
            history->last[batch[j].vcpu] = left;
        }
    }
    list->count = left;
    order_objects_free(&objects);
}
