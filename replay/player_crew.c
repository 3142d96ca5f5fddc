/*
 * Plays a recording of vCPUs that ran at the same time, each in a VM of its own: their runs from
 * exit to exit, which begin in the order in which they began. It is enough to play them one after
 * another, by one thread: a vCPU gets a page only when a run of its own begins, and only from vCPUs
 * that have come to an exit; so what a run sees of others is what their runs that began before it
 * have left behind. For the same reason two runs that want no page of each other may also be played
 * at the same time (player_threads.c). Permissions are those of the recording, so that a run ends
 * at the same page fault as there.
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
    if (!event_decode(&c, &cpu->ahead_codec, recording_version(p->recording), &cpu->next_ahead) ||
        (cpu->next_ahead.kind != EVENT_FORCED && cpu->next_ahead.kind != EVENT_REST) ||
        cpu->next_ahead.ordinal < cpu->syncs)
        return player_bad(p, e, "a forced point of a vCPU makes no sense");
    cpu->ahead_bytes = got - cursor_left(&c);
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

/* How a vCPU goes on where its turn ends. */
enum next_run {
    RUN_NONE,   /* it rests */
    RUN_FREELY, /* to an exit of its own */
    RUN_LANDS,  /* to a forced point */
};

/* Of a recording that was cut short: its last sync point there is behind it. What it ran then has
 * an end that only others tell of: see run_for_others(). */
static bool is_at_known_end(const struct player *p, const struct player_cpu *cpu)
{
    return !recording_complete(p->recording) && cpu->syncs == cpu->known_syncs;
}

static bool stands(const struct player_cpu *cpu)
{
    return cpu->rests || cpu->waits || cpu->runs;
}

static int next_run(struct player *p, enum next_run *run, struct err *e)
{
    struct player_cpu *cpu = p->cpu;

    *run = RUN_NONE;
    if (fetch_ahead(p, cpu, e) < 0)
        return -1;
    const bool ahead = cpu->has_ahead && cpu->next_ahead.ordinal == cpu->syncs;
    if (ahead && cpu->next_ahead.kind == EVENT_REST) /* nobody knows where it ended */
        cpu->rests = true;
    else
        *run = ahead ? RUN_LANDS : RUN_FREELY;
    return 0;
}

/* To its next exit, which waits to be served then. */
static int run_here(struct player *p, enum next_run run, struct err *e)
{
    struct player_cpu *cpu = p->cpu;
    int rc = 1;

    if (run == RUN_LANDS) {
        if (!player_all_stand(p))
            return 0;
        rc = land(p, &cpu->next_ahead.landmark, e);
        cpu->exit = (struct vcpu_exit){.kind = EXIT_FORCED};
        if (rc > 0) /* a clock that steps has done so; the sync point may be long in coming */
            clock_sync(&cpu->clock);
        cpu->has_ahead = rc <= 0; /* a landing that was interrupted is gone on with */
        if (!cpu->has_ahead)      /* its list of pages is not needed any more */
            stream_skip(cpu->ahead, cpu->ahead_bytes);
    } else if (player_run_to_exit(p, &cpu->exit, e) < 0) {
        rc = -1;
    }
    cpu->waits = rc > 0 && p->status == PLAYER_RUNNING;
    return rc < 0 ? -1 : 0;
}

/* The end of a turn: the vCPU runs on to its next exit, unless it rests, or nobody knows that it
 * came to one (`ends`: somebody does). Where they run at the same time it only begins to, but for a
 * landing, which may use what belongs to all. */
static int run_on(struct player *p, bool ends, struct err *e)
{
    struct player_cpu *cpu = p->cpu;
    enum next_run run;

    if (stands(cpu) || (!ends && is_at_known_end(p, cpu)))
        return 0;
    if (next_run(p, &run, e) < 0)
        return -1;
    if (run == RUN_NONE)
        return 0;
    if (run == RUN_FREELY && p->threads) {
        p->at_sync = false;
        cpu->runs = true;
        return 0;
    }
    return run_here(p, run, e);
}

/*
 * Those who must stand before the vCPU whose turn it is gets that page (NULL: all) did so in the
 * recording. If that was cut short, they may have come to an exit that it does not have any more,
 * their next turn being too late: they run to it, or the page would not be what it was.
 */
static int run_for_others(struct player *p, const struct page_fault *wanted, struct err *e)
{
    const unsigned own = p->cpu->vcpu.index;
    const uint64_t root = wanted ? views_root(&p->cpu->vcpu) : 0;
    int rc = 0;

    for (unsigned i = 0; i < p->cpu_count && rc == 0 && p->status == PLAYER_RUNNING; i++) {
        enum next_run run;
        if (i == own || stands(&p->cpus[i]) || !is_at_known_end(p, &p->cpus[i]) ||
            (wanted && !views_conflict(&p->views, own, i, root, wanted)))
            continue;
        if (!player_all_stand(p))
            break;
        player_set_cpu(p, i);
        rc = next_run(p, &run, e);
        if (rc == 0 && run != RUN_NONE)
            rc = run_here(p, run, e);
        if (p->status == PLAYER_DIVERGED)
            break; /* the report is about this one */
        player_set_cpu(p, own);
    }
    return rc;
}

/* A turn begins with what its vCPU has come to. */
static int begin_turn(struct player *p, struct err *e)
{
    struct player_cpu *cpu = p->cpu;
    const struct guest_memory *m = &p->vm.memory;
    struct page_fault fault = {0}, given[VIEWS_GIVEN_MAX];

    cpu->rests = cpu->may_regain = false;
    if (cpu->waits && cpu->exit.kind == EXIT_FAULT) {
        const uint8_t *at = guest_memory_at(m, cpu->exit.at, PAGE_BYTES);
        assert(at); /* it is our own fault, and not the recording's */
        fault = (struct page_fault){(uint64_t)(at - m->host) / PAGE_BYTES, cpu->exit.size};
        if (!player_losers_stand(p, &fault))
            return 0;
        if (run_for_others(p, &fault, e) < 0)
            return -1;
        if (p->status != PLAYER_RUNNING)
            return 0;
    }
    p->turn_begins = false;
    if (!cpu->waits)
        return 0;
    cpu->waits = false;
    cpu->syncs++;
    if (player_take_exit(p, &cpu->exit, e) < 0)
        return -1;
    views_return(&p->views, cpu->vcpu.index);
    if (p->status == PLAYER_RUNNING && cpu->exit.kind == EXIT_FAULT)
        cpu->may_regain =
            views_give(&p->views, cpu->vcpu.index, views_root(&cpu->vcpu), &fault, given) > 0;
    return 0;
}

int player_crew_regain(struct player *p, bool all, struct err *e)
{
    struct page_fault given[VIEWS_GIVEN_MAX];

    if (!p->cpu->may_regain || !views_can_regain(&p->views, p->cpu->vcpu.index, all))
        return player_bad(p, e, "pages come back to a CPU that has lost none");
    p->cpu->may_regain = false;
    views_regain(&p->views, p->cpu->vcpu.index, all, given);
    return 0;
}

/* Behind the last event of a sync point: another turn of the same vCPU. */
static int next_turn(struct player *p, struct err *e)
{
    if (run_on(p, false, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    if (!stream_left(p->stream[STREAM_SYNCS])) {
        if (recording_complete(p->recording))
            return player_bad(p, e, "it stops without an end");
        if (player_all_stand(p))
            p->status = PLAYER_CUT;
        return 0;
    }
    if (!p->cpu->waits && !p->cpu->runs)
        return player_bad(p, e, "a CPU that rests comes to a sync point");
    p->turn_begins = true;
    return 0;
}

/* A turn of another one. */
static int switch_to(struct player *p, unsigned index, struct err *e)
{
    if (run_on(p, false, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    player_consume(p);
    if (index >= p->cpu_count)
        return player_bad(p, e, "a CPU runs that there is not");
    player_set_cpu(p, index);
    p->turn_begins = true;
    return 0;
}

/* Whether it is of nobody but the vCPU whose turn it is. */
static bool is_its_own(const struct event *event)
{
    switch (event->kind) {
    case EVENT_INJECT:
    case EVENT_WINDOW:
    case EVENT_START:
    case EVENT_REST:
    case EVENT_REGAIN:
    case EVENT_NMI:
    case EVENT_CR8:
    case EVENT_TSD:
    case EVENT_TIME: /* of devices; nothing here */
    case EVENT_RECEIVED:
    case EVENT_MARK: /* nothing here either */
        return true;
    default:
        return false;
    }
}

static int next_event(struct player *p, struct err *e)
{
    if (p->next.kind == EVENT_SCHEDULE)
        return switch_to(p, p->next.vcpu, e);
    /* At the end of all nobody is still on its way, and this one neither. */
    if (p->next.kind == EVENT_END && run_on(p, true, e) < 0)
        return -1;
    if (p->cpu->runs)
        return 0; /* to be looked at again */
    if (p->status != PLAYER_RUNNING || (!is_its_own(&p->next) && !player_all_stand(p)))
        return 0;
    if (!is_its_own(&p->next) && run_for_others(p, NULL, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    int rc = player_apply(p, &p->next, e);
    player_consume(p);
    return rc;
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
    if (!event_decode(&c, &after, recording_version(p->recording), event))
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

int player_crew_step(struct player *p, uint64_t until, struct err *e)
{
    if (p->turn_begins)
        return begin_turn(p, e);
    if ((p->pause && *p->pause) || (p->at_sync && p->ordinal >= until)) {
        if (player_all_stand(p))
            p->status = PLAYER_STOPPED;
        return 0;
    }
    if (player_fetch(p, e) < 0)
        return -1;
    return p->has_next && p->next.ordinal == p->ordinal ? next_event(p, e) : next_turn(p, e);
}

int player_crew_run(struct player *p, uint64_t until, struct err *e)
{
    int rc = 0;

    if (p->at_once)
        return player_threads_run(p, until, e);
    while (p->status == PLAYER_RUNNING && rc == 0)
        rc = player_crew_step(p, until, e);
    return rc;
}
