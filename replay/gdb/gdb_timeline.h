#ifndef REPLAY_GDB_GDB_TIMELINE_H
#define REPLAY_GDB_GDB_TIMELINE_H

#include <pthread.h>

#include "replay/gdb/gdb_target.h"
#include "replay/timeline.h"

/* What gdb sees of a replay: the gdb server's target, over a timeline. */
struct gdb_timeline {
    struct gdb_target target; /* its first member */
    struct timeline *timeline;
    struct gdb_stop_point *points; /* breakpoints that gdb has set */
    bool may_change;               /* registers and memory: timeline_change() */
    pthread_t runner;              /* the thread of gdb_timeline_init() and gdb_serve() */
};

/* To be served by this thread, which SIGUSR1 takes out of the guest. */
void gdb_timeline_init(struct gdb_timeline *g, struct timeline *t);
void gdb_timeline_close(struct gdb_timeline *g);

/* `monitor COMMAND` (replay/gdb/gdb_monitor.c). */
int gdb_timeline_monitor(struct gdb_target *t, const char *command, struct bytes *out,
                         struct err *e);

static inline struct gdb_timeline *gdb_timeline_of(struct gdb_target *t)
{
    return (struct gdb_timeline *)t;
}

#endif
