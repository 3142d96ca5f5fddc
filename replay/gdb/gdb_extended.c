/* `target extended-remote`: `run` begins anew, and `kill` does not end the connection. */
#include <string.h>

#include "replay/gdb/gdb_session.h"
#include "replay/gdb/gdb_text.h"

/* Nothing is lost by it: the recording and its checkpoints are there still. */
void gdb_kill(struct gdb_session *s)
{
    gdb_remove_all(s);
    s->killed = true;
    gdb_reply(s, "OK");
}

/* FILE[;ARGUMENT...], each in hex. The file is the recording, whatever gdb says; the first argument
 * may be a place in it. */
void gdb_run_again(struct gdb_session *s, const char *p)
{
    const char *separator = strchr(p, ';');
    struct bytes argument = {0};
    struct gdb_watcher w;
    struct err e = {.text = ""};
    unsigned cpu = 0;

    if (separator && !gdb_unhex(&argument, separator + 1)) {
        gdb_reply(s, GDB_ERROR_MALFORMED);
        bytes_free(&argument);
        return;
    }
    bytes_put_u8(&argument, 0);
    int rc = gdb_watch_begin(&w, s, false, &e);
    if (rc == 0) {
        rc = s->t->ops->restart(s->t, separator ? (const char *)argument.data : NULL, &cpu, &e);
        gdb_watch_end(&w);
        s->interrupt_late = atomic_load(&w.called);
        if (w.gone)
            gdb_end_session(s, GDB_VANISHED);
    }
    bytes_free(&argument);
    if (rc < 0) {
        gdb_refuse(s, e.text);
        return;
    }
    s->killed = false;
    s->stop = (struct gdb_stop){.reason = GDB_STOP_STEP, .cpu = cpu};
    s->cpu = s->run_cpu = cpu;
    gdb_stop_reply(s);
}
