#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/replaying.h"
#include "host/gdb_listen.h"
#include "replay/gdb/gdb_server.h"
#include "replay/gdb/gdb_timeline.h"

static void interrupt_timeline(void *opaque)
{
    timeline_interrupt(opaque);
}

static void say_how(const struct replay_options *o, const struct gdb_listener *l)
{
    text_print(stderr, "dittovm: for symbols: dittovm symbols %s > guest.sym; gdb guest.sym\n",
               o->place.path);
    text_print(stderr, "dittovm: waiting for gdb: target remote %s\n", l->name);
}

static int serve_gdb(struct timeline *t, const struct replay_options *o, struct err *e)
{
    struct gdb_listener listener;
    struct gdb_timeline g;
    int client, end = GDB_DETACHED;

    if (gdb_open(&listener, o->gdb, e) < 0)
        return -1;
    gdb_timeline_init(&g, t);
    g.target.quit = stop_signals_came();
    g.may_change = o->diverge;
    say_how(o, &listener);
    while (end >= 0 && end != GDB_KILLED && end != GDB_QUIT) {
        if (gdb_accept(&listener, stop_signals_came(), &client, e) < 0)
            end = -1;
        else if (client < 0)
            end = GDB_QUIT;
        else {
            end = gdb_serve(&g.target, client, e);
            close(client);
            /* The next one finds what was recorded. */
            if (end >= 0 && timeline_undo(t, e) == TIMELINE_FAILED)
                end = -1;
        }
    }
    gdb_timeline_close(&g);
    gdb_listener_close(&listener);
    return end < 0 ? -1 : 0;
}

/* Go where gdb is to begin: at the snapshot or mark that was named, at --to, or at the beginning.
 */
static int go_to_start(struct timeline *t, const struct replay_options *o, struct err *e)
{
    const struct recording *r = t->player->recording;
    const char *name = o->place.name;
    const struct snapshot_entry *snapshot;
    uint64_t to = o->until, named = to;

    if (mark_place_is(name)) {
        if (mark_place_find(r, name, &named, e) < 0)
            return -1;
    } else if (name[0]) {
        snapshot = snapshot_list_find(&t->snapshots, r, name, e);
        if (!snapshot)
            return -1;
        named = snapshot->ordinal;
    }
    if (to == UINT64_MAX)
        to = named;
    return to == UINT64_MAX || timeline_seek(t, to, e) != TIMELINE_FAILED ? 0 : -1;
}

int replay_under_gdb(struct recording *recording, const struct replay_options *o, struct err *e)
{
    struct player p;
    struct timeline t;

    signal(SIGPIPE, SIG_IGN);
    if (player_open(&p, recording, o->clock, e) < 0)
        return -1;
    int rc = timeline_open(&t, &p, o->checkpoint_memory, e);
    if (rc == 0) {
        const struct stopper stopper = {interrupt_timeline, &t};
        stop_signals_call(&stopper);
        rc = go_to_start(&t, o, e);
        if (rc == 0)
            rc = serve_gdb(&t, o, e);
        stop_signals_call(NULL);
        timeline_close(&t);
    }
    player_close(&p);
    return rc;
}
