#ifndef RECORDER_STORER_H
#define RECORDER_STORER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "recording/page_copies.h"

/*
 * A thread that stores copies of pages in a recording while the machine runs on: hashing them takes
 * ten times as long as the copy.
 */
struct storer {
    struct page_copies copies; /* filled by its owner while it is idle */
    struct chunk_store *chunks;
    struct recording_writer *writer;
    pthread_t thread;
    bool running; /* there is a thread: copies are its own */
    atomic_bool done;
};

/* Store what is in `copies`; where there can be no thread it is done at once. */
void storer_begin(struct storer *s);
/* Whether all is stored, and copies are empty; never waits. */
bool storer_is_idle(struct storer *s);
/* Wait until it is. */
void storer_wait(struct storer *s);

#endif
