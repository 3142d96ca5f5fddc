#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/command.h"
#include "recording/event.h"
#include "recording/places/snapshot_list.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"
#include "replay/divergence.h"

struct dump {
    struct stream_reader *syncs, *events;
    struct snapshot_list snapshots;
    size_t snapshot; /* the first that is not shown yet */
    struct sync_point last[MAX_VCPUS];
    unsigned vcpu; /* that runs now */
    struct event_codec codec;
    uint32_t version; /* of the recording's format */
    struct event next;
    bool has_next, json;
    uint64_t ordinal, from, to;
    const char *path;
};

static void print_line(const struct dump *d, const char *kind, const char *text)
{
    if (d->ordinal < d->from)
        return;
    if (!d->json) {
        printf("%10llu  %-6s %s\n", (unsigned long long)d->ordinal, kind, text);
        return;
    }
    json_t *j =
        json_pack("{s:I, s:s, s:s}", "ordinal", (json_int_t)d->ordinal, "type", kind, "text", text);
    json_dumpf(j, stdout, JSON_SORT_KEYS | JSON_COMPACT);
    putchar('\n');
    json_decref(j);
}

static void landmark_format(const struct landmark *l, char *text, size_t size)
{
    int used = snprintf(text, size, "forced point ahead at rip %#llx, CPL %u",
                        (unsigned long long)l->regs[REGISTER_RIP], l->cpl);

    if (l->exact)
        used += snprintf(text + used, size - (size_t)used, ", %u pages written before", l->pages);
    if (l->entry != ENTRY_UNKNOWN)
        snprintf(text + used, size - (size_t)used, ", %s entry %llu into the kernel",
                 l->entry == ENTRY_HERE ? "at" : "behind", (unsigned long long)l->entries);
}

/* Those for who follows the devices. */
static void device_event_format(const struct event *event, char *text, size_t size)
{
    switch (event->kind) {
    case EVENT_TIME:
        snprintf(text, size, "device time %llu.%09llu s",
                 (unsigned long long)(event->time_ns / 1000000000u),
                 (unsigned long long)(event->time_ns % 1000000000u));
        break;
    case EVENT_RECEIVED:
        snprintf(text, size, "console input, %u byte%s", event->received.len,
                 event->received.len == 1 ? "" : "s");
        break;
    case EVENT_FRAME:
        if (event->frame.len)
            snprintf(text, size, "NIC %u %s a frame of %u bytes", event->frame.nic,
                     event->frame.is_sent ? "sends" : "receives", event->frame.len);
        else
            snprintf(text, size, "NIC %u waits, or goes on, with what it sends", event->frame.nic);
        break;
    case EVENT_DISK_DONE:
        snprintf(text, size, "disk %u completes %u request%s", event->disk_done.disk,
                 event->disk_done.count, event->disk_done.count == 1 ? "" : "s");
        break;
    case EVENT_MARK:
        snprintf(text, size, "mark%s: %s", event->mark.by_guest ? " of the guest" : "",
                 event->mark.text);
        break;
    case EVENT_BOOT:
        snprintf(text, size, "the machine boots again");
        break;
    default:
        snprintf(text, size, "event %d", event->kind);
    }
}

static void event_format(const struct event *event, char *text, size_t size)
{
    switch (event->kind) {
    case EVENT_INJECT:
        snprintf(text, size, "interrupt, vector %#x", event->vector);
        break;
    case EVENT_WINDOW:
        snprintf(text, size, "interrupt window %s", event->window ? "wanted" : "not wanted");
        break;
    case EVENT_DMA_WRITE:
        snprintf(text, size, "memory written at %#llx, %u bytes",
                 (unsigned long long)event->dma.gpa, event->dma.len);
        break;
    case EVENT_DMA_READ:
        snprintf(text, size, "memory read at %#llx, %u bytes", (unsigned long long)event->dma.gpa,
                 event->dma.len);
        break;
    case EVENT_HOOK:
        snprintf(text, size, "#GP hook at %#llx", (unsigned long long)event->hook.rip);
        break;
    case EVENT_FORCED:
        landmark_format(&event->landmark, text, size);
        break;
    case EVENT_DIGEST:
        snprintf(text, size, "digest: memory %016llx, CPU %016llx",
                 (unsigned long long)event->digest.memory, (unsigned long long)event->digest.cpu);
        break;
    case EVENT_SCHEDULE:
        snprintf(text, size, "vCPU %u runs", event->vcpu);
        break;
    case EVENT_START:
        snprintf(text, size, "started at %#x", event->vector << 12);
        break;
    case EVENT_NMI:
        snprintf(text, size, "NMI");
        break;
    case EVENT_REST:
        snprintf(text, size, "it rests");
        break;
    case EVENT_REGAIN:
        snprintf(text, size,
                 event->all ? "lost pages come back" : "the page comes back to be written");
        break;
    case EVENT_TSD:
        snprintf(text, size, "CR4.TSD is set again");
        break;
    case EVENT_CR8:
        snprintf(text, size, "CR8 becomes %u", event->cr8);
        break;
    case EVENT_END:
        snprintf(text, size, "end: %s%s", end_reason_text(event->end.reason),
                 event->end.has_digest ? ", with digest" : "");
        break;
    default:
        device_event_format(event, text, size);
    }
}

/* Decode the next event, if there is one. */
static int fetch(struct dump *d, struct err *e)
{
    size_t got;

    if (d->has_next)
        return 0;
    const uint8_t *data = stream_peek(d->events, EVENT_MAX_BYTES, &got);
    if (stream_bad(d->events))
        return stream_error(d->events, e);
    if (!got)
        return 0;
    struct cursor c = cursor_of(data, got);
    if (!event_decode(&c, &d->codec, d->version, &d->next))
        return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: an event makes no sense", d->path);
    stream_skip(d->events, got - cursor_left(&c));
    d->has_next = true;
    return 0;
}

static int dump_events(struct dump *d, struct err *e)
{
    char text[256] = "";

    for (;;) {
        if (fetch(d, e) < 0)
            return -1;
        if (d->has_next && d->next.ordinal < d->ordinal)
            return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: its events are out of order",
                           d->path);
        if (!d->has_next || d->next.ordinal != d->ordinal)
            return 0;
        if (d->next.kind == EVENT_SCHEDULE)
            d->vcpu = d->next.vcpu;
        else if (d->next.kind == EVENT_BOOT)
            d->vcpu = 0;
        event_format(&d->next, text, sizeof text);
        print_line(d, "event", text);
        d->has_next = false;
    }
}

static int by_place(const void *a, const void *b)
{
    const struct snapshot_entry *x = a, *y = b;

    return x->ordinal != y->ordinal ? (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal)
                                    : (x->offset > y->offset) - (x->offset < y->offset);
}

/* They are in order of their places. */
static void dump_snapshots(struct dump *d)
{
    const struct snapshot_list *list = &d->snapshots;

    for (; d->snapshot < list->count && list->at[d->snapshot].ordinal <= d->ordinal; d->snapshot++)
        if (list->at[d->snapshot].ordinal == d->ordinal)
            print_line(d, "snapshot", list->at[d->snapshot].name);
}

static int dump_all(struct dump *d, struct err *e)
{
    char what[128], text[200];

    while (d->ordinal <= d->to) {
        size_t got;
        if (dump_events(d, e) < 0)
            return -1;
        const uint8_t *data = stream_peek(d->syncs, SYNC_MAX_BYTES, &got);
        if (stream_bad(d->syncs))
            return stream_error(d->syncs, e);
        if (!got)
            return 0;
        struct cursor c = cursor_of(data, got);
        struct sync_point sync;
        if (!sync_decode(&c, &d->last[d->vcpu], &sync))
            return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: a sync point makes no sense",
                           d->path);
        stream_skip(d->syncs, got - cursor_left(&c));
        d->ordinal++;
        if (d->ordinal > d->to)
            return 0;
        sync_point_format(&sync, what, sizeof what);
        snprintf(text, sizeof text, "%s at rip %#llx", what,
                 (unsigned long long)sync.regs[REGISTER_RIP]);
        print_line(d, "sync", text);
        dump_snapshots(d);
    }
    return 0;
}

#define POINT_MOST (UINT64_MAX - 1)

static const struct option_entry options[] = {
    NUMBER_OPTION(OPTION_NUMBER, "from", "N", struct dump, from, 0, POINT_MOST,
                  "the number of a sync point", "begin at sync point N"),
    NUMBER_OPTION(OPTION_NUMBER, "to", "N", struct dump, to, 0, POINT_MOST,
                  "the number of a sync point", "end behind sync point N"),
    FLAG_OPTION(0, "json", struct dump, json, "one JSON object a line"),
    END_OF_OPTIONS,
};

static int parse(struct dump *d, int argc, char **argv, struct err *e)
{
    *d = (struct dump){.to = POINT_MOST};
    const int first = options_parse(options, d, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "dump: give one recording (see dittovm dump --help)");
    d->path = argv[first];
    return 0;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct dump d;
    int rc = -1;

    (void)inv;
    if (parse(&d, argc, argv, e) < 0)
        return -1;
    struct recording *r = recording_open(d.path, e);
    if (!r)
        return -1;
    d.version = recording_version(r);
    d.syncs = stream_open(r, STREAM_SYNCS, e);
    d.events = d.syncs ? stream_open(r, STREAM_EVENTS, e) : NULL;
    if (d.events && snapshot_list_load(&d.snapshots, r, e) == 0) {
        if (d.snapshots.count)
            qsort(d.snapshots.at, d.snapshots.count, sizeof *d.snapshots.at, by_place);
        rc = dump_all(&d, e);
    }
    snapshot_list_free(&d.snapshots);
    if (d.events)
        stream_close(d.events);
    if (d.syncs)
        stream_close(d.syncs);
    recording_close(r);
    return rc;
}

const struct command command_dump = {
    .name = "dump",
    .summary = "list the sync points and events of a recording",
    .usage = "dump [OPTIONS] REC",
    .about = "Lists the sync points of a recording and the events between them, in order, one a "
             "line; and\n"
             "where its snapshots are.",
    .options = options,
    .run = run,
};
