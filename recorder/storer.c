#include "recorder/storer.h"

#include <assert.h>

#include "base/deaf_thread.h"

/* So many pages at a time: between them it looks for room in the writer's queue, so that the
 * machine's own data never wait for it. */
#define PAGES_AT_ONCE 16

static void *store(void *opaque)
{
    struct storer *s = opaque;

    do
        writer_wait_for_room(s->writer);
    while (page_copies_store(&s->copies, s->chunks, PAGES_AT_ONCE));
    atomic_store(&s->done, true);
    return NULL;
}

void storer_begin(struct storer *s)
{
    assert(!s->running);
    atomic_store(&s->done, false);
    s->running = deaf_thread_create(&s->thread, store, s) == 0;
    if (!s->running)
        store(s);
}

bool storer_is_idle(struct storer *s)
{
    if (s->running && atomic_load(&s->done))
        storer_wait(s);
    return !s->running;
}

void storer_wait(struct storer *s)
{
    if (s->running)
        pthread_join(s->thread, NULL);
    s->running = false;
}
