#ifndef RECORDING_ORDER_ORDER_H
#define RECORDING_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "recording/order/access.h"

/*
 * Order logs: what has to be known of a list of accesses (recording/order/access.h) so that vCPUs
 * which run freely, each through its own part of the list, load what they loaded and store in the
 * order in which they stored. An *encoder* makes such a log, and says, from the log alone, who has
 * to wait in a replay. docs/order.md has the formats and what they cost.
 *
 *   ditto   a load waits for the store whose value it read, a store for the one before and for its
 *           loads; what is implied is left out (Silva, Simão, Veiga: Ditto)
 *   leap    for each object, whose turn it is (Huang, Liu, Zhang: LEAP)
 *   jarec   Lamport clocks (Georges, Christiaens, Ronsse, De Bosschere: JaRec)
 *   dejavu  one order of everything (Choi, Srinivasan: DejaVu)
 *   levels  JaRec's with loads told apart, ours; the smallest, but it makes vCPUs wait for more
 */
struct order_log {
    unsigned vcpus; /* 1 to MAX_VCPUS */
    unsigned prune; /* ORDER_PRUNE_*: what a recording may leave out; only ditto does. Like `vcpus`
                     * it is of the whole log, and kept with it: the parts do not have it */
    /* The log itself, a part for each vCPU; the first part alone is used where it is by object. */
    struct bytes part[MAX_VCPUS];
    /* What it is made of: constraints, turns, jumps of a clock, intervals. */
    uint64_t constraints;
};

enum order_prune {
    ORDER_PRUNE_PROGRAM = 1, /* what the vCPU's program implies */
    ORDER_PRUNE_INTERACTIONS =
        2,                      /* what the last store of another vCPU that it waited for implies */
    ORDER_PRUNE_TRANSITIVE = 4, /* what those it waited for had themselves waited for; needs 2 */
    ORDER_PRUNE_ALL = 7,
};

enum order_answer {
    ORDER_WAIT, /* something of another vCPU's must come first */
    ORDER_GO,   /* and so it stays until it is done */
    ORDER_WRONG /* this log is not of this program, or damaged: it does not have this access here */
};

/*
 * One kind of log. A recording takes the list, access by access. A replay may be driven in any
 * interleaving: before a vCPU's next access ask `may` until it says ORDER_GO, and after it call
 * `did`. Calls must not overlap. Of an access they look at vcpu, object and store.
 *
 * A replay reads the log as hostile: whatever its bytes are, nothing is read or written outside of
 * it, memory is bounded by the log's length and by the objects that are accessed, and each answer
 * takes constant time. Memory that is exhausted aborts the process.
 */
struct order_encoder {
    const char *name;
    const char *unit; /* what log->constraints counts, plural */

    /* *log is empty and outlives the recording. Parts grow as accesses come where `streams` is
     * true; bytes that are in them already may be taken away (bytes_clear). */
    bool streams;
    void *(*record)(struct order_log *log);
    void (*access)(void *recording, const struct access *a);
    /* Write what was held back, and free the recording. */
    void (*finish)(void *recording);

    /* The log must outlive the replay. NULL: it makes no sense. */
    void *(*replay)(const struct order_log *log);
    enum order_answer (*may)(void *replay, const struct access *a);
    /* may() has said ORDER_GO to it. */
    void (*did)(void *replay, const struct access *a);
    /* Whether all that the log says has happened, and nothing more is to come. */
    bool (*ended)(const void *replay);
    void (*close)(void *replay);
};

extern const struct order_encoder order_ditto, order_leap, order_jarec, order_global, order_levels;

#define ORDER_ENCODERS 5u
extern const struct order_encoder *const order_encoders[ORDER_ENCODERS];

/* An empty log for 1 to MAX_VCPUS vCPUs, with everything left out that can be. */
void order_log_init(struct order_log *log, unsigned vcpus);
void order_log_free(struct order_log *log);
/* Bytes of all parts. */
uint64_t order_log_bytes(const struct order_log *log);
/* The same after zlib, as a recording's blocks are compressed (level 6, pieces of 256 KiB). */
uint64_t order_log_compressed(const struct order_log *log);

/* Encode a whole list; *log must be initialized for list->vcpus. */
void order_record(const struct order_encoder *encoder, const struct access_list *list,
                  struct order_log *log);

/* For the encoders: zeroed memory, or the process is aborted. */
void *order_allocate(size_t size);

#endif
