#ifndef VMM_MACHINE_DISKS_H
#define VMM_MACHINE_DISKS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/limits.h"
#include "devices/pc.h"
#include "recorder/recorder.h"

/*
 * The disks of a live machine work while it runs. What needs no waiting is done at the doorbell,
 * and so is the rest while it does not take long; else it is done by a thread, one job after
 * another, as all disks may be one image (disk_join.h). Completions come at sync points only, and
 * each is noted in the recording.
 */
struct disks {
    struct disk_lane {
        struct block_link link;
        struct disks *disks;
        unsigned index;
    } lane[MAX_DISKS];
    struct pc *pc;
    struct recorder *recorder; /* set by the owner; NULL: none */
    pthread_t thread;
    bool has_thread;
    void (*notify)(void *opaque);
    void *opaque;
    int64_t took_ns;      /* that jobs take which have to wait: an average. Of who runs jobs */
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    struct block_job *oldest, *newest; /* of those that wait for the thread or are with it */
    bool stops;                        /* the thread is to end */
};

/* Before the devices of `pc` are made, which get the links. */
void disks_open(struct disks *disks, struct pc *pc);
/* Also of zeroes. */
void disks_close(struct disks *disks);
struct block_link *disks_link(struct disks *disks, unsigned index);

/* From here on, until disks_ignore(), jobs that take long are the thread's, which calls
 * notify(opaque) when one is done. Else they are done at the doorbell, and so they are if there can
 * be no thread. */
void disks_listen(struct disks *disks, void (*notify)(void *opaque), void *opaque);
/* Waits until all jobs are done. */
void disks_ignore(struct disks *disks);

/* Whether there are requests that could be completed. Any time: it only looks. */
bool disks_have_done(const struct disks *disks);
/* The machine stands at a sync point: they are. */
void disks_complete(struct disks *disks);
/* Wait until all jobs are done, so that the devices can be saved, with what is on the disks. */
void disks_settle(struct disks *disks);

#endif
