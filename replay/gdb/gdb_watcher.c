#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "replay/gdb/gdb_session.h"

#include "base/deaf_thread.h"

/* gdb gives up waiting after two seconds, its remotetimeout. */
#define KEEP_ALIVE_MS 1000

static void interrupt(struct gdb_watcher *w)
{
    atomic_store(&w->called, true);
    w->s->t->ops->interrupt(w->s->t);
}

/* Nobody else touches the link while this runs. What it reads stays there for who comes after. */
static void *watch(void *opaque)
{
    struct gdb_watcher *w = opaque;
    struct gdb_link *link = &w->s->link;
    enum gdb_fill fill = gdb_link_pending(link);

    for (;;) {
        struct pollfd p[2] = {{w->s->wake, POLLIN, 0}, {link->fd, gdb_link_events(link), 0}};
        if (fill == GDB_FILL_GONE)
            w->gone = true;
        if (w->gone || (fill == GDB_FILL_SPEECH && !atomic_load(&w->called)))
            interrupt(w);
        if (w->gone)
            return NULL;
        fill = GDB_FILL_NOTHING;
        const int ready = poll(p, 2, w->keep_alive ? KEEP_ALIVE_MS : -1);
        if (ready == 0 && gdb_link_send(link, "O", 1) < 0)
            fill = GDB_FILL_GONE;
        if (ready <= 0)
            continue;
        if (p[0].revents)
            return NULL;
        if (p[1].revents)
            fill = gdb_link_fill(link);
    }
}

int gdb_watch_begin(struct gdb_watcher *w, struct gdb_session *s, bool keep_alive, struct err *e)
{
    w->s = s;
    w->keep_alive = keep_alive;
    atomic_init(&w->called, false);
    w->gone = false;
    int error = deaf_thread_create(&w->thread, watch, w);
    if (error)
        return err_set(e, STATUS_ERROR, "cannot start a thread: %s", strerror(error));
    return 0;
}

void gdb_watch_end(struct gdb_watcher *w)
{
    uint64_t count = 1;

    /* An eventfd takes and gives 8 bytes, always: at most 1 is in it. */
    if (write(w->s->wake, &count, sizeof count) < 0)
        abort();
    pthread_join(w->thread, NULL);
    if (read(w->s->wake, &count, sizeof count) < 0)
        abort();
}
