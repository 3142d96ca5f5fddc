/*
 * Plays a recording of vCPUs that ran at the same time, each in a VM of its own, by one thread:
 * their runs from exit to exit one after another, in the order in which they began. That is enough:
 * a vCPU gets a page only when a run of its own begins, and only from vCPUs that have come to an
 * exit; so what a run sees of others is what their runs that began before it have left behind.
 * Permissions are those of the recording, so that a run ends at the same page fault as there.
 */
#include <assert.h>
#include <string.h>

#include "replay/player_inside.h"

static int fetch_ahead(struct player *p, struct player_cpu *cpu, struct err *e)
{
    size_t got;

    if (cpu->has_ahead)
        return 0;
    const uint8_t *data = stream_peek(cpu->ahead, EVENT_MAX_BYTES, &got);
    if (stream_bad(cpu->ahead))
        return stream_error(cpu->ahead, e);
    if (!got)
        return 0;
    struct cursor c = cursor_of(data, got);
    if (!event_decode(&c, &cpu->ahead_codec, &cpu->next_ahead) ||
        (cpu->next_ahead.kind != EVENT_FORCED && cpu->next_ahead.kind != EVENT_REST) ||
        cpu->next_ahead.ordinal < cpu->syncs)
        return player_bad(p, e, "a forced point of a vCPU makes no sense");
    stream_skip(cpu->ahead, got - cursor_left(&c));
    cpu->has_ahead = true;
    return 0;
}

/* A page as it was before a landing. */
struct lent {
    uint64_t page;
    enum page_access access;
    uint8_t copy[PAGE_BYTES];
};

/* A place in user code is found by a trap into the kernel, for which the vCPU may lack pages. It
 * has not used them since its run began, or would have come out at them: so it gets them for the
 * landing, and they are put back as they were. */
static unsigned lend_pages(struct player *p, struct lent lent[GPHOOK_PAGES])
{
    struct vcpu *vcpu = &p->cpu->vcpu;
    struct ownership *o = p->views.ownership;
    struct page_fault wanted[GPHOOK_PAGES];
    const unsigned pages = gphook_pages(vcpu, &p->hook, wanted);
    unsigned count = 0;

    for (unsigned i = 0; i < pages; i++) {
        const uint64_t page = wanted[i].page;
        if (ownership_table(o, vcpu->index)[page] >= wanted[i].access)
            continue;
        lent[count].page = page;
        memcpy(lent[count].copy, p->vm.memory.host + page * PAGE_BYTES, PAGE_BYTES);
        lent[count++].access = ownership_set(o, vcpu->index, page, wanted[i].access);
    }
    return count;
}

static void take_back(struct player *p, const struct lent *lent, unsigned count)
{
    while (count--) {
        memcpy(p->vm.memory.host + lent[count].page * PAGE_BYTES, lent[count].copy, PAGE_BYTES);
        ownership_set(p->views.ownership, p->cpu->vcpu.index, lent[count].page, lent[count].access);
    }
}

static int land(struct player *p, const struct landmark *landmark, struct err *e)
{
    struct lent lent[GPHOOK_PAGES];
    const unsigned count = landmark->cpl == 3 ? lend_pages(p, lent) : 0;
    const int rc = player_land(p, landmark, e);

    take_back(p, lent, count);
    if (rc > 0 && landmark->cpl == 3)
        gphook_clear_user_frame(&p->cpu->vcpu);
    return rc;
}

/* The end of a turn: the vCPU runs on to its next exit, unless it rests. */
static int run_on(struct player *p, struct err *e)
{
    struct player_cpu *cpu = p->cpu;
    int rc = 1;

    if (cpu->rests || cpu->waits)
        return 0;
    if (!recording_complete(p->recording) && cpu->syncs == cpu->known_syncs) {
        cpu->rests = true; /* nobody knows where it ended */
        return 0;
    }
    if (fetch_ahead(p, cpu, e) < 0)
        return -1;
    const bool ahead = cpu->has_ahead && cpu->next_ahead.ordinal == cpu->syncs;
    if (ahead && cpu->next_ahead.kind == EVENT_REST) { /* nor here */
        cpu->rests = true;
        return 0;
    }
    if (ahead) {
        rc = land(p, &cpu->next_ahead.landmark, e);
        cpu->exit = (struct vcpu_exit){.kind = EXIT_FORCED};
        cpu->has_ahead = rc <= 0; /* a landing that was interrupted is gone on with */
    } else if (player_run_to_exit(p, &cpu->exit, e) < 0) {
        rc = -1;
    }
    cpu->waits = rc > 0 && p->status == PLAYER_RUNNING;
    return rc < 0 ? -1 : 0;
}

/* A turn begins with what its vCPU has come to. */
static int serve_exit(struct player *p, struct err *e)
{
    struct player_cpu *cpu = p->cpu;

    assert(cpu->waits);
    cpu->waits = false;
    cpu->syncs++;
    if (player_take_exit(p, &cpu->exit, e) < 0)
        return -1;
    views_return(&p->views, cpu->vcpu.index);
    if (p->status != PLAYER_RUNNING || cpu->exit.kind != EXIT_FAULT)
        return 0;
    const struct guest_memory *m = &p->vm.memory;
    const uint8_t *at = guest_memory_at(m, cpu->exit.at, PAGE_BYTES);
    assert(at); /* it is our own fault, and not the recording's */
    const struct page_fault fault = {(uint64_t)(at - m->host) / PAGE_BYTES, cpu->exit.size};
    views_give(&p->views, cpu->vcpu.index, views_root(&cpu->vcpu), &fault);
    return 0;
}

/* The next turn is this one's. */
static int switch_to(struct player *p, unsigned index, struct err *e)
{
    if (index >= p->cpu_count)
        return player_bad(p, e, "a CPU runs that there is not");
    player_set_cpu(p, index);
    p->cpu->rests = false;
    return p->cpu->waits ? serve_exit(p, e) : 0;
}

/* Behind the last event of a sync point. */
static int next_turn(struct player *p, struct err *e)
{
    if (run_on(p, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    if (!stream_left(p->stream[STREAM_SYNCS])) {
        if (recording_complete(p->recording))
            return player_bad(p, e, "it stops without an end");
        p->status = PLAYER_CUT;
        return 0;
    }
    if (!p->cpu->waits)
        return player_bad(p, e, "a CPU that rests comes to a sync point");
    return serve_exit(p, e);
}

static int next_event(struct player *p, struct err *e)
{
    const bool switches = p->next.kind == EVENT_SCHEDULE;
    const unsigned index = p->next.vcpu;

    /* At the end of all, too, nobody is still on its way. */
    if ((switches || p->next.kind == EVENT_END) && run_on(p, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    int rc = switches ? 0 : player_apply(p, &p->next, e);
    player_consume(p);
    return switches ? switch_to(p, index, e) : rc;
}

/* The next event of a stream at this ordinal: 1; 0: there is none. */
static int event_at(struct player *p, struct stream_reader *in, struct event_codec *codec,
                    uint64_t ordinal, struct event *event, struct err *e)
{
    struct event_codec after = *codec;
    size_t got;

    const uint8_t *data = stream_peek(in, EVENT_MAX_BYTES, &got);
    if (stream_bad(in))
        return stream_error(in, e);
    struct cursor c = cursor_of(data, got);
    if (!got)
        return 0;
    if (!event_decode(&c, &after, event))
        return player_bad(p, e, "an event makes no sense");
    if (event->ordinal > ordinal)
        return 0;
    *codec = after;
    stream_skip(in, got - cursor_left(&c));
    return 1;
}

/* How many sync points each vCPU has in a recording that was cut short: what it ran behind them has
 * no end there. */
static int count_syncs(struct player *p, struct stream_reader *events, struct stream_reader *syncs,
                       struct err *e)
{
    struct event_codec codec = {0};
    struct sync_point last = {0}, sync;
    struct event event;
    unsigned vcpu = 0;
    size_t got;
    int rc = 0;

    for (uint64_t ordinal = 0; stream_left(syncs); ordinal++) {
        while ((rc = event_at(p, events, &codec, ordinal, &event, e)) > 0)
            if (event.kind == EVENT_SCHEDULE)
                vcpu = event.vcpu;
        if (rc < 0)
            return -1;
        const uint8_t *data = stream_peek(syncs, SYNC_MAX_BYTES, &got);
        if (stream_bad(syncs))
            return stream_error(syncs, e);
        struct cursor c = cursor_of(data, got);
        if (!sync_decode(&c, &last, &sync))
            return player_bad(p, e, "a sync point makes no sense");
        stream_skip(syncs, got - cursor_left(&c));
        p->cpus[vcpu].known_syncs++;
    }
    return 0;
}

static int look_ahead(struct player *p, struct err *e)
{
    struct stream_reader *events = stream_open(p->recording, STREAM_EVENTS, e);
    struct stream_reader *syncs = events ? stream_open(p->recording, STREAM_SYNCS, e) : NULL;
    int rc = syncs ? count_syncs(p, events, syncs, e) : -1;

    if (events)
        stream_close(events);
    if (syncs)
        stream_close(syncs);
    return rc;
}

int player_crew_open(struct player *p, struct err *e)
{
    for (unsigned i = 0; i < p->cpu_count; i++) {
        p->cpus[i].ahead = stream_open(p->recording, STREAM_AHEAD + i, e);
        if (!p->cpus[i].ahead)
            return -1;
        p->cpus[i].rests = i > 0;
    }
    views_begin(&p->views);
    return recording_complete(p->recording) ? 0 : look_ahead(p, e);
}

int player_crew_run(struct player *p, uint64_t until, struct err *e)
{
    int rc = 0;

    while (p->status == PLAYER_RUNNING && rc == 0) {
        if ((p->pause && *p->pause) || (p->at_sync && p->ordinal >= until)) {
            p->status = PLAYER_STOPPED;
            break;
        }
        if (player_fetch(p, e) < 0)
            return -1;
        rc = p->has_next && p->next.ordinal == p->ordinal ? next_event(p, e) : next_turn(p, e);
    }
    return rc;
}
