#ifndef DEVICES_VIRTIO_BLOCK_LINK_H
#define DEVICES_VIRTIO_BLOCK_LINK_H

#include <stdatomic.h>
#include <stdbool.h>

/*
 * What does the work of a block device: its jobs run in the order in which they were submitted, on
 * whatever thread, and touch the disk and what is their own, but no guest memory. So what they read
 * and write does not depend on when they run.
 */
struct block_job {
    /* Do it. Where it may not wait for the host's storage and would have to: false, and it is to be
     * run again. */
    bool (*run)(struct block_job *job, bool may_wait);
    struct block_job *next; /* the link's */
    atomic_bool done;       /* by the link, behind which it does not touch the job any more */
};

struct block_link {
    /* It may be done by the time this returns. */
    void (*submit)(struct block_link *link, struct block_job *job);
    /* So many of the device's oldest jobs are done: how many of them it is to complete now. It
     * does. */
    unsigned (*completes)(struct block_link *link, unsigned done);
    /* Wait until all the device's jobs are done. */
    void (*settle)(struct block_link *link);
    /* Each request is to be completed before the next one is taken. */
    bool one_by_one;
};

#endif
