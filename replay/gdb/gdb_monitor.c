/* `monitor COMMAND` in gdb. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "recording/symbol_list.h"
#include "replay/gdb/gdb_monitor.h"
#include "replay/gdb/gdb_text.h"
#include "replay/gdb/gdb_timeline.h"
#include "replay/snapshot_adder.h"

#define NS 1000000000ull
#define MS 1000000ull

static const char *const exit_names[] = {
    [EXIT_PIO_IN] = "a port is read",
    [EXIT_PIO_OUT] = "a port is written",
    [EXIT_MMIO_READ] = "a device is read",
    [EXIT_MMIO_WRITE] = "a device is written",
    [EXIT_HLT] = "HLT",
    [EXIT_WINDOW] = "interrupts are possible again",
    [EXIT_RDMSR] = "RDMSR",
    [EXIT_WRMSR] = "WRMSR",
    [EXIT_RDTSC] = "RDTSC in the kernel",
    [EXIT_TRAP] = "#GP (RDTSC in a program, for one)",
    [EXIT_SHUTDOWN] = "triple fault",
    [EXIT_FORCED] = "forced point",
    [EXIT_FAULT] = "another CPU has the page",
};

/* The guest's time here, which devices and RDTSC have shown last, and where the recording knows it
 * the wall clock's: not if it went live from another one, whose time goes on in it. */
static void put_time(const struct player *p, struct bytes *out)
{
    const uint64_t devices = (p->has_next ? &p->codec_before : &p->codec)->time_ns;
    const uint64_t now = devices > p->tsc ? devices : p->tsc;
    size_t len;
    const char *text = recording_meta(p->recording, &len);
    json_t *meta = json_loadb(text, len, 0, NULL);
    const json_int_t began = json_integer_value(json_object_get(meta, "time"));
    const json_int_t slow =
        json_integer_value(json_object_get(json_object_get(meta, "machine"), "slow"));
    json_int_t passed = 0, when_json = 0;
    /* A description may say anything. */
    const bool known = began && !__builtin_mul_overflow(now / MS, slow > 1 ? slow : 1, &passed) &&
                       !__builtin_add_overflow(began, passed / 1000, &when_json);
    const time_t when = (time_t)when_json;
    char date[64];
    struct tm tm;

    gdb_put_text(out, ", %llu.%06llu s", (unsigned long long)(now / NS),
                 (unsigned long long)(now % NS / 1000));
    if (known && !json_object_get(meta, "live_from") && gmtime_r(&when, &tm) &&
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &tm))
        gdb_put_text(out, " after its start (%s)", date);
    else
        gdb_put_text(out, " of the guest's time");
    json_decref(meta);
}

static void put_place(const struct timeline *t, struct bytes *out)
{
    const struct player *p = t->player;
    const uint64_t rip = p->cpu->vcpu.regs->rip;
    char symbol[128];

    symbolize(p->recording, rip, symbol, sizeof symbol);
    gdb_put_text(out, "sync point %llu", (unsigned long long)p->ordinal);
    if (!p->at_sync && t->here->mark.at_sync && t->here->mark.ordinal == p->ordinal &&
        t->steps != STEPS_UNKNOWN)
        gdb_put_text(out, " + %llu", (unsigned long long)t->steps);
    else if (!p->at_sync)
        gdb_put_text(out, " and some instructions");
    if (t->changed)
        gdb_put_text(out, ", changed at sync point %llu",
                     (unsigned long long)t->here->mark.ordinal);
    gdb_put_text(out, ", rip %#llx %s, %u %% of the recording", (unsigned long long)rip, symbol,
                 player_progress(p));
    put_time(p, out);
    bytes_put_u8(out, '\n');
}

static int do_when(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    (void)rest;
    (void)e;
    put_place(t, out);
    return 0;
}

/* It arrived, or not. */
static int say_arrival(const struct timeline *t, enum timeline_stop stop, struct bytes *out,
                       struct err *e)
{
    if (stop == TIMELINE_FAILED)
        return -1;
    if (stop == TIMELINE_DIVERGED)
        return err_set(e, STATUS_ERROR, "the replay diverges before that");
    if (stop == TIMELINE_END)
        gdb_put_text(out, "the end of the recording: ");
    put_place(t, out);
    return 0;
}

/* N, N+K: K instructions behind sync point N; @N: checkpoint N; mark:TEXT, boot:N. */
static int do_seek(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    char *end;
    uint64_t marked;
    if (mark_place_is(rest)) {
        if (mark_place_find(t->player->recording, rest, &marked, e) < 0)
            return -1;
        return say_arrival(t, timeline_seek(t, marked, e), out, e);
    }
    const bool by_number = *rest == '@';
    const unsigned long long n = strtoull(rest + by_number, &end, 0);
    const unsigned long long steps = !by_number && *end == '+' ? strtoull(end + 1, &end, 0) : 0;
    enum timeline_stop stop = TIMELINE_THERE;

    if (end == rest + by_number || *end)
        return err_set(e, STATUS_USAGE,
                       "seek takes a sync point N, N+K (K instructions behind it), mark:TEXT, "
                       "boot:N, or @N: a checkpoint");
    if (by_number) {
        struct moment *m = &t->first.moment;
        while (m && checkpoint_of(m)->number != n)
            m = m->later;
        if (!m || !n)
            return err_set(e, STATUS_USAGE, "there is no checkpoint %llu", n);
        if (timeline_restore(t, checkpoint_of(m), e) < 0)
            return -1;
    } else {
        stop = timeline_seek(t, n, e);
        for (unsigned long long i = 0; i < steps && stop == TIMELINE_THERE; i++)
            stop = timeline_step(t, e);
    }
    return say_arrival(t, stop, out, e);
}

static int do_checkpoint(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    (void)rest;
    const struct checkpoint *c = timeline_checkpoint(t, e);
    if (!c)
        return -1;
    gdb_put_text(out, "checkpoint %llu: ", (unsigned long long)c->number);
    put_place(t, out);
    return 0;
}

/* [NAME]: the same, kept in the recording. */
static int do_snapshot(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    struct player *p = t->player;
    struct snapshot_adder adder;
    struct snapshot_entry made;

    if (*rest && !snapshot_name_valid(rest))
        return err_set(e, STATUS_USAGE, "a name has up to %u letters, digits, '.', '_', '+' or '-'",
                       SNAPSHOT_NAME_MAX);
    if (t->changed)
        return err_set(e, STATUS_ERROR,
                       "this is not what was recorded: go back before the change first");
    if (!p->at_sync || !p->ordinal)
        return err_set(e, STATUS_ERROR, "a snapshot can be at a sync point only; monitor seek %llu",
                       (unsigned long long)(p->ordinal ? p->ordinal : 1));
    if (snapshot_adder_open(&adder, recording_path(p->recording), e) < 0)
        return -1;
    if (snapshot_adder_put(&adder, p, *rest ? rest : NULL, NULL, &made, e) < 0) {
        snapshot_adder_abort(&adder);
        return -1;
    }
    if (snapshot_adder_finish(&adder, e) < 0)
        return -1;
    gdb_put_text(out, "snapshot %s: ", made.name);
    put_place(t, out);
    return 0;
}

/* gdb waits for the answer, and each symbol is looked for from the beginning. */
#define EVENTS_MAX 1000u

/* What the recording says about the sync points around here. */
static int do_events(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    struct player *p = t->player;
    struct stream_reader *in = stream_open(p->recording, STREAM_SYNCS, e);
    struct sync_point last = p->cpu->last_sync, next;
    uint64_t ordinal = p->ordinal;
    unsigned long left = *rest ? strtoul(rest, NULL, 0) : 10;

    if (!in)
        return -1;
    if (left > EVENTS_MAX) {
        stream_close(in);
        return err_set(e, STATUS_ERROR, "at most %u at once; see dittovm dump", EVENTS_MAX);
    }
    if (p->cpu_count > 1) { /* which one is at the next ones is among the events */
        stream_close(in);
        return err_set(e, STATUS_ERROR, "with several CPUs, see dittovm dump");
    }
    stream_seek(in, stream_tell(p->stream[STREAM_SYNCS]));
    for (; left && stream_left(in); left--) {
        size_t got;
        const uint8_t *data = stream_peek(in, SYNC_MAX_BYTES, &got);
        struct cursor c = cursor_of(data, data ? got : 0);
        char symbol[128];
        if (!sync_decode(&c, &last, &next))
            break;
        stream_skip(in, got - cursor_left(&c));
        symbolize(p->recording, next.regs[REGISTER_RIP], symbol, sizeof symbol);
        gdb_put_text(out, "%llu: %s", (unsigned long long)++ordinal,
                     next.kind < sizeof exit_names / sizeof *exit_names && exit_names[next.kind]
                         ? exit_names[next.kind]
                         : "?");
        if (next.kind <= EXIT_MMIO_WRITE || next.kind == EXIT_RDMSR || next.kind == EXIT_WRMSR)
            gdb_put_text(out, " %#llx", (unsigned long long)next.at);
        gdb_put_text(out, ", rip %#llx %s\n", (unsigned long long)next.regs[REGISTER_RIP], symbol);
    }
    stream_close(in);
    return 0;
}

static int do_help(struct timeline *t, const char *rest, struct bytes *out, struct err *e);

static const struct {
    const char *name, *help;
    int (*run)(struct timeline *t, const char *rest, struct bytes *out, struct err *e);
} commands[] = {
    {"when", "where in the recording we are", do_when},
    {"seek",
     "N | N+K | @C | mark:TEXT | boot:N: go to sync point N, K instructions behind it, checkpoint "
     "C, a mark, or where the machine boots for the N-th time",
     do_seek},
    {"checkpoint", "remember this place", do_checkpoint},
    {"snapshot", "[NAME]: keep this place, a sync point, in the recording: REC@NAME", do_snapshot},
    {"info", "[checkpoints] | version | registers | mem: of the CPU that runs here",
     gdb_monitor_info},
    {"events", "[COUNT]: what the recording has next", do_events},
    {"help", "this", do_help},
};

static int do_help(struct timeline *t, const char *rest, struct bytes *out, struct err *e)
{
    (void)t;
    (void)rest;
    (void)e;
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++)
        gdb_put_text(out, "%-11s %s\n", commands[i].name, commands[i].help);
    return 0;
}

int gdb_timeline_monitor(struct gdb_target *t, const char *command, struct bytes *out,
                         struct err *e)
{
    const size_t len = strcspn(command, " ");
    const char *rest = command + len + strspn(command + len, " ");

    if (!len)
        return do_help(gdb_timeline_of(t)->timeline, rest, out, e);

    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strlen(commands[i].name) == len && !strncmp(commands[i].name, command, len))
            return commands[i].run(gdb_timeline_of(t)->timeline, rest, out, e);
    return err_set(e, STATUS_USAGE, "no command '%.*s'; monitor help lists them", (int)len,
                   command);
}
