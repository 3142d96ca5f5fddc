#ifndef RECORDING_ORDER_ACCESS_H
#define RECORDING_ORDER_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/limits.h"

/*
 * A transition of shared memory between vCPUs that run at the same time: a vCPU loads from an
 * object, or stores to it, that it could not load from or store to before (page ownership:
 * concurrent readers or one writer). What it then does there, until somebody else takes the object
 * away, is ordered by its own program and is none.
 *
 * A list of them is in an order in which each vCPU's own come as its program has them, and those of
 * each object as they happened. It is what order encoders (recording/order/order.h) work on, and in
 * a recording it is STREAM_ACCESSES.
 */
struct access {
    uint64_t object; /* number of the guest page, or any other name of what is shared */
    uint64_t point;  /* where in the vCPU's program: a count of its own that never falls */
    uint8_t vcpu;    /* less than MAX_VCPUS */
    bool store;
};

/*
 * The stream: for each access
 *
 *   u8                                              vCPU | 8 if it is a store
 *   svarint(object - last object of this vCPU)      modulo 2^64; at first the last one is 0
 *   varint(point - last point of this vCPU)         at first the last one is 0
 */
#define ACCESS_MAX_BYTES 21

/* The codec's memory, zeroed at the start; encoder and decoder each own one. */
struct access_codec {
    uint64_t object[MAX_VCPUS], point[MAX_VCPUS];
};

void access_encode(struct bytes *out, struct access_codec *codec, const struct access *a);
/* False when what is there is no access; *a is not to be used then. */
bool access_decode(struct cursor *in, struct access_codec *codec, struct access *a);

/* Accesses in memory; at most ACCESSES_MAX (0.8 GB). */
#define ACCESSES_MAX (1u << 25)

struct access_list {
    struct access *at;
    size_t count, capacity;
    unsigned vcpus; /* of the machine: each access's vCPU is less */
};

/* Append one; -1 when there are too many. */
int access_list_add(struct access_list *list, const struct access *a);
void access_list_free(struct access_list *list);

#endif
