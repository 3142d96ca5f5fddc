#include <string.h>

#include "replay/gdb/gdb_registers.h"
#include "replay/gdb/gdb_session.h"
#include "replay/gdb/gdb_text.h"

/* gdb would ask for these after every stop. */
static void put_expedited(struct gdb_session *s)
{
    static const unsigned numbers[] = {GDB_REGISTER_RBP, GDB_REGISTER_RSP, GDB_REGISTER_RIP};
    struct vcpu_state state;
    struct err e;

    if (s->t->ops->state(s->t, s->stop.cpu, &state, &e) < 0)
        return;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        gdb_put_text(&s->out, "%02x:", numbers[i]);
        gdb_register_put(&s->out, &state, numbers[i]);
        gdb_put_text(&s->out, ";");
    }
}

static void put_watch(struct gdb_session *s)
{
    const char *word = s->stop.watch_kind == GDB_WATCH_READ     ? "rwatch"
                       : s->stop.watch_kind == GDB_WATCH_ACCESS ? "awatch"
                                                                : "watch";

    gdb_put_text(&s->out, "%s:%llx;", word, (unsigned long long)s->stop.watch_va);
}

/* The signal is a number of gdb's: 5 a trap, 2 an interrupt. */
void gdb_stop_reply(struct gdb_session *s)
{
    gdb_put_text(&s->out, "T%02xthread:%x;", s->stop.reason == GDB_STOP_INTERRUPTED ? 2u : 5u,
                 s->stop.cpu + 1);
    switch (s->stop.reason) {
    case GDB_STOP_STEP:
    case GDB_STOP_INTERRUPTED:
        break;
    case GDB_STOP_BREAKPOINT:
        if (s->stop.watch_kind == GDB_HARDWARE && s->hwbreak)
            gdb_put_text(&s->out, "hwbreak:;");
        else if (s->stop.watch_kind != GDB_HARDWARE && s->swbreak)
            gdb_put_text(&s->out, "swbreak:;");
        break;
    case GDB_STOP_WATCH:
        put_watch(s);
        break;
    case GDB_STOP_LOG_BEGIN:
        gdb_put_text(&s->out, "replaylog:begin;");
        break;
    case GDB_STOP_LOG_END:
    case GDB_STOP_DIVERGED:
        gdb_put_text(&s->out, "replaylog:end;");
        break;
    }
    put_expedited(s);
}

static bool must_quit(const struct gdb_session *s)
{
    return s->t->quit && *s->t->quit;
}

/* An interrupt that came too late for the last run would stop this one before it has begun. */
static int resume(struct gdb_session *s, const struct gdb_watcher *w, unsigned cpu,
                  enum gdb_resume how, struct gdb_stop *stop, struct err *e)
{
    bool late = s->interrupt_late;

    for (;; late = false) {
        *stop = (struct gdb_stop){.cpu = cpu};
        int rc = s->t->ops->resume(s->t, cpu, how, stop, e);
        if (!late || rc < 0 || stop->reason != GDB_STOP_INTERRUPTED || atomic_load(&w->called) ||
            must_quit(s))
            return rc;
    }
}

static void say(struct gdb_session *s, const char *sentence)
{
    struct bytes text = {0};

    gdb_put_text(&text, "dittovm: %s\n", sentence);
    gdb_console(s, text.data, text.len);
    bytes_free(&text);
}

void gdb_run(struct gdb_session *s, unsigned cpu, enum gdb_resume how)
{
    struct gdb_watcher w;
    struct gdb_stop stop;
    struct err e = {.text = ""};

    if (gdb_watch_begin(&w, s, false, &e) < 0) {
        gdb_reply_error(s, e.text);
        return;
    }
    int rc = resume(s, &w, cpu, how, &stop, &e);
    gdb_watch_end(&w);
    s->interrupt_late = atomic_load(&w.called) && !(rc == 0 && stop.reason == GDB_STOP_INTERRUPTED);
    if (w.gone) {
        gdb_end_session(s, GDB_VANISHED);
        return;
    }
    if (rc < 0) {
        gdb_reply_error(s, e.text);
        return;
    }
    if (stop.cpu >= s->t->ops->cpus(s->t))
        stop.cpu = cpu;
    s->stop = stop;
    s->cpu = s->run_cpu = stop.cpu;
    if (stop.reason == GDB_STOP_DIVERGED)
        say(s, e.text[0] ? e.text
                         : "the replay is not the recording from here on; it goes no further");
    if (stop.note[0])
        say(s, stop.note);
    gdb_console(s, NULL, 0);
    gdb_stop_reply(s);
}
