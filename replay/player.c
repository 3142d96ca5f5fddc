#include "replay/player.h"

#include <assert.h>
#include <string.h>

#include "base/now.h"
#include "mmu/digest.h"
#include "recording/streams.h"
#include "replay/player_inside.h"
#include "vmm/kvm/cr4.h"
#include "vmm/points/fingerprint.h"

int player_bad(const struct player *p, struct err *e, const char *what)
{
    return err_set(e, STATUS_BAD_RECORDING, "%s is damaged: %s (at sync point %llu)",
                   recording_path(p->recording), what, (unsigned long long)p->ordinal);
}

unsigned player_progress(const struct player *p)
{
    uint64_t total = recording_stream_length(p->recording, STREAM_SYNCS);

    return total ? (unsigned)(stream_tell(p->stream[STREAM_SYNCS]) * 100 / total) : 100;
}

struct landing_stats player_landing_stats(const struct player *p)
{
    struct landing_stats all = {0};

    for (unsigned i = 0; i < p->cpu_count; i++) {
        all.landings += p->cpus[i].clock.stats.landings;
        all.exits += p->cpus[i].clock.stats.exits;
    }
    return all;
}

void player_interrupt(struct player *p)
{
    p->interrupted = true;
    if (p->threads)
        player_threads_kick(p);
    else if (p->cpu->vcpu.run)
        vcpu_kick(&p->cpu->vcpu);
}

void player_set_cpu(struct player *p, unsigned index)
{
    assert(index < p->cpu_count);
    p->cpu = &p->cpus[index];
    p->stops.vcpu = &p->cpu->vcpu;
}

/* ---- reading ahead ---- */

int player_fetch(struct player *p, struct err *e)
{
    struct stream_reader *in = p->stream[STREAM_EVENTS];
    size_t got;

    if (p->has_next)
        return 0;
    const uint8_t *data = stream_peek(in, EVENT_MAX_BYTES, &got);
    if (stream_bad(in))
        return stream_error(in, e);
    if (!got)
        return 0;
    struct cursor c = cursor_of(data, got);
    p->codec_before = p->codec;
    if (!event_decode(&c, &p->codec, recording_version(p->recording), &p->next) ||
        p->next.ordinal < p->ordinal)
        return player_bad(p, e, "an event makes no sense");
    p->has_next = true;
    p->next_bytes = got - cursor_left(&c);
    p->stats.events++;
    return 0;
}

/* Inline DMA data points into the stream, so an event's bytes are left only behind it. */
void player_consume(struct player *p)
{
    stream_skip(p->stream[STREAM_EVENTS], p->next_bytes);
    p->has_next = false;
}

/* ---- applying events ---- */

static int dma_write(struct player *p, const struct dma_transfer *dma, struct err *e)
{
    uint8_t *to = guest_memory_at(&p->vm.memory, dma->gpa, dma->len);
    uint8_t page[PAGE_BYTES];

    if (!to)
        return player_bad(p, e, "a device writes outside memory");
    guest_memory_mark(&p->vm.memory, to, dma->len);
    if (dma->len <= DMA_INLINE_MAX) {
        memcpy(to, dma->data, dma->len);
        return 0;
    }
    for (uint32_t at = 0; at < dma->len; at += PAGE_BYTES) {
        uint32_t n = dma->len - at < PAGE_BYTES ? dma->len - at : PAGE_BYTES;
        size_t len;
        if (chunk_read(p->chunks, dma->chunks[at / PAGE_BYTES], page, &len, e) < 0)
            return -1;
        if (len < n)
            return player_bad(p, e, "a device's data is incomplete");
        memcpy(to + at, page, n);
    }
    return 0;
}

static int compare_digest(struct player *p, const struct state_digest *expected, struct err *e)
{
    struct state_digest got = {.outputs = p->outputs};

    if (p->changed)
        return 0;
    if (vcpus_digest(&p->vm, &got.cpu, e) < 0)
        return -1;
    got.memory = memory_digest(&p->vm.memory, NULL);
    p->stats.digests++;
    p->end = got;
    if (!memcmp(&got, expected, sizeof got))
        return 0;
    p->status = PLAYER_DIVERGED;
    p->divergence.kind = DIVERGED_DIGEST;
    p->divergence.ordinal = p->ordinal;
    p->divergence.digest_expected = *expected;
    p->divergence.digest_got = got;
    return 0;
}

struct landing_place {
    const struct player *player;
    uint64_t rip;
};

static void landing_lasts(void *opaque, unsigned seconds)
{
    const struct landing_place *l = opaque;
    const struct player *p = l->player;

    p->landing_lasts(p, p->ordinal + 1, l->rip, seconds, p->landing_opaque);
}

/* To where the breakpoints stop before the point. */
static enum clock_landing run_before(struct player *p, struct vcpu_exit *exit, struct err *e)
{
    static const enum clock_landing landing_of[] = {
        [BREAKPOINT_HIT] = LAND_BREAK,     [BREAKPOINT_EXIT] = LAND_MISSED,
        [BREAKPOINT_LATE] = LAND_LATE,     [BREAKPOINT_STOPPED] = LAND_STOPPED,
        [BREAKPOINT_FAILED] = LAND_FAILED,
    };

    return landing_of[breakpoints_run(&p->stops, exit, e)];
}

/* With breakpoints of a user's the landing is by one more, as where an entry is counted, or where
 * nobody has counted branches since the last sync point: every recording has the landmark. */
static enum clock_landing find_landmark(struct player *p, const struct landmark *landmark,
                                        struct vcpu_exit *exit, struct err *e)
{
    struct clock *clock = &p->cpu->clock;
    const struct landmark place = player_place(p, landmark);
    const bool by_entry = place.entry == ENTRY_HERE && !clock->ops->steps_only;
    const struct clock_ops *ops =
        breakpoints_any(&p->stops) || by_entry || !p->at_sync ? &clock_landmark : clock->ops;

    p->at_sync = false;
    p->stops.repeating &= breakpoints_any(&p->stops);
    if (p->stops_before && p->stops_before->regs[REGISTER_RIP] == place.regs[REGISTER_RIP])
        return run_before(p, exit, e);
    clock->breakpoints = breakpoints_any(&p->stops) ? &p->stops : NULL;
    struct landing_place lasting = {p, place.regs[REGISTER_RIP]};
    clock->lasts = p->landing_lasts ? landing_lasts : NULL;
    clock->lasts_opaque = &lasting;
    const enum clock_landing landing = ops->land(clock, &place, exit, &p->interrupted, e);
    clock->lasts = NULL;
    return landing;
}

/* The point cannot be reached; exit: what came instead, or NULL. */
static void lost(struct player *p, const struct landmark *l, enum divergence_kind kind,
                 const struct vcpu_exit *exit)
{
    struct divergence *d = &p->divergence;
    const uint8_t *code = guest_memory_at(&p->vm.memory, l->gpa, l->code_len);

    p->status = PLAYER_DIVERGED;
    d->kind = kind;
    d->ordinal = p->ordinal + 1;
    d->expected = (struct sync_point){.kind = EXIT_FORCED};
    memcpy(d->expected.regs, l->regs, sizeof l->regs);
    d->passes = p->cpu->clock.stats.passes;
    d->code_len = l->code_len;
    memcpy(d->code, l->code, l->code_len);
    d->code_here_len = code ? l->code_len : 0;
    if (code)
        memcpy(d->code_here, code, l->code_len);
    if (exit)
        d->got = vcpu_sync_point(&p->cpu->vcpu, exit, (uint8_t)p->outputs);
}

int player_land(struct player *p, const struct landmark *landmark, struct err *e)
{
    struct vcpu_exit exit;
    struct landing cost = {
        .ordinal = p->ordinal + 1,
        .rip = landmark->regs[REGISTER_RIP],
        .cpl = landmark->cpl,
        .exits = p->cpu->clock.stats.exits,
        .ns = host_now_ns(),
    };

    switch (find_landmark(p, landmark, &exit, e)) {
    case LANDED:
        fingerprint_arrive(&p->cpu->vcpu, landmark);
        cost.exits = p->cpu->clock.stats.exits - cost.exits;
        cost.ns = host_now_ns() - cost.ns;
        landing_log_add(&p->landings, &cost);
        return 1;
    case LAND_MISSED:
        lost(p, landmark, DIVERGED_MISSED, &exit);
        return 0;
    case LAND_PASSED:
        lost(p, landmark, DIVERGED_PASSED, NULL);
        return 0;
    case LAND_LATE:
        lost(p, landmark, DIVERGED_LATE, NULL);
        return 0;
    case LAND_CHANGED:
        lost(p, landmark, DIVERGED_CODE, NULL);
        return 0;
    case LAND_STOPPED:
        p->interrupted = false;
        p->status = PLAYER_STOPPED;
        return 0;
    case LAND_BREAK:
        p->status = PLAYER_BREAK;
        return 0;
    case LAND_FAILED:
        break;
    }
    return -1;
}

static int land(struct player *p, const struct landmark *landmark, struct err *e)
{
    const struct vcpu_exit forced = {.kind = EXIT_FORCED};
    const int landed = player_land(p, landmark, e);

    return landed > 0 ? player_check(p, &forced, e) : landed;
}

/* It is another vCPU's turn; the same as schedule_switch() of a live machine. */
static int schedule(struct player *p, unsigned index, struct err *e)
{
    if (index >= p->cpu_count)
        return player_bad(p, e, "a CPU runs that there is not");
    if (breakpoints_complete(&p->stops, e) < 0)
        return -1;
    if (vcpu_is_halfway(&p->cpu->vcpu))
        return player_bad(p, e, "a CPU's turn ends in the middle of an instruction");
    player_set_cpu(p, index);
    vcpu_flush_tlb(&p->cpu->vcpu);
    clock_sync(&p->cpu->clock);
    return 0;
}

/* As the recorder did before it injected something (recording/format.h, 21). */
static int finish_before_event(struct player *p, struct err *e)
{
    if (p->parallel || recording_version(p->recording) < RECORDING_COMPLETES_FIRST)
        return 0;
    if (breakpoints_complete(&p->stops, e) < 0)
        return -1;
    return vcpu_is_halfway(&p->cpu->vcpu)
               ? player_bad(p, e, "an interrupt comes in the middle of an instruction")
               : 0;
}

/* What completes the access of a sync point unseen, or lands behind it: who watches memory shall
 * know what that stores. */
static bool completes(enum event_kind kind)
{
    return kind == EVENT_DIGEST || kind == EVENT_END || kind == EVENT_FORCED;
}

int player_apply(struct player *p, const struct event *event, struct err *e)
{
    struct kvm_sregs sregs;
    const void *from;

    if (p->follower && p->follower->event(p->follower, event, e) < 0)
        return -1;
    if (p->stops.watched && completes(event->kind) && breakpoints_complete(&p->stops, e) < 0)
        return -1;
    switch (event->kind) {
    case EVENT_INJECT:
        if (finish_before_event(p, e) < 0)
            return -1;
        vcpu_inject(&p->cpu->vcpu, event->vector);
        return 0;
    case EVENT_WINDOW:
        vcpu_want_window(&p->cpu->vcpu, event->window);
        return 0;
    case EVENT_SCHEDULE:
        return schedule(p, event->vcpu, e);
    case EVENT_START:
        return vcpu_start(&p->cpu->vcpu, event->vector, e);
    case EVENT_REST:
        p->cpu->rests = true;
        return 0;
    case EVENT_REGAIN:
        return player_crew_regain(p, event->all, e);
    case EVENT_NMI:
        if (finish_before_event(p, e) < 0)
            return -1;
        vcpu_inject_nmi(&p->cpu->vcpu);
        return 0;
    case EVENT_CR8:
        vcpu_set_cr8(&p->cpu->vcpu, event->cr8);
        return 0;
    case EVENT_TSD:
        vcpu_get_sregs(&p->cpu->vcpu, &sregs);
        vcpu_set_sregs(&p->cpu->vcpu, &sregs);
        return 0;
    case EVENT_DMA_WRITE:
        return dma_write(p, &event->dma, e);
    case EVENT_DMA_READ:
        from = guest_memory_at(&p->vm.memory, event->dma.gpa, event->dma.len);
        if (!from)
            return player_bad(p, e, "a device reads outside memory");
        p->outputs = output_fold(p->outputs, event->dma.gpa, from, event->dma.len);
        return 0;
    case EVENT_HOOK:
        p->hook = event->hook;
        return 0;
    case EVENT_FORCED:
        return land(p, &event->landmark, e);
    case EVENT_DIGEST:
        return compare_digest(p, &event->digest, e);
    case EVENT_TIME:
    case EVENT_RECEIVED:
    case EVENT_FRAME:
    case EVENT_DISK_DONE:
    case EVENT_MARK:
        return 0;
    case EVENT_BOOT:
        return player_boot(p, &event->boot, e);
    case EVENT_END:
        p->status = PLAYER_ENDED;
        p->reason = event->end.reason;
        p->end_not_compared = !event->end.has_digest;
        return event->end.has_digest ? compare_digest(p, &event->end.digest, e) : 0;
    }
    return player_bad(p, e, "an event is of no known kind");
}

/* Everything that happened between the sync point we stand at and the guest's next instruction. 1:
 * that was a forced point; what happened there is still to be applied. */
static int apply_events(struct player *p, struct err *e)
{
    for (;;) {
        if (player_fetch(p, e) < 0)
            return -1;
        if (!p->has_next || p->next.ordinal != p->ordinal)
            return 0;
        const bool forced = p->next.kind == EVENT_FORCED;
        int rc = player_apply(p, &p->next, e);
        /* On the way to a forced point, which is gone on with. */
        if (rc < 0 || p->status == PLAYER_BREAK || p->status == PLAYER_STOPPED)
            return rc;
        player_consume(p);
        if (p->follower && p->follower->behind && p->follower->behind(p->follower, e) < 0)
            return -1;
        if (forced && p->status == PLAYER_RUNNING && breakpoints_hit(&p->stops))
            p->status = PLAYER_BREAK;
        if (forced || p->status != PLAYER_RUNNING)
            return forced;
    }
}

/* ---- sync points ---- */

int player_check(struct player *p, const struct vcpu_exit *exit, struct err *e)
{
    struct player_cpu *cpu = p->cpu;
    struct stream_reader *in = p->stream[STREAM_SYNCS];
    struct sync_point expected, got;
    size_t available;

    const uint8_t *data = stream_peek(in, SYNC_MAX_BYTES, &available);
    if (stream_bad(in))
        return stream_error(in, e);
    struct cursor c = cursor_of(data, available);
    if (!sync_decode(&c, &cpu->last_sync, &expected))
        return player_bad(p, e, "a sync point makes no sense");
    stream_skip(in, available - cursor_left(&c));
    if (exit_is_output(exit->kind))
        p->outputs =
            output_fold(p->outputs, exit->at, exit->data, (size_t)exit->size * exit->count);
    /* A page fault comes between any two instructions, as a forced point does. */
    if (exit->kind == EXIT_FAULT && expected.kind == EXIT_FAULT)
        fingerprint_undefined_flags(&cpu->vcpu, expected.regs[REGISTER_RFLAGS]);
    got = vcpu_sync_point(&cpu->vcpu, exit, (uint8_t)p->outputs);
    clock_sync(&cpu->clock);
    p->at_sync = true;
    p->ordinal++;
    p->stats.syncs++;
    if (got.kind == expected.kind && got.size == expected.size && got.count == expected.count &&
        got.at == expected.at && got.output == expected.output &&
        !memcmp(got.regs, expected.regs, sizeof got.regs)) {
        p->divergence.before = got;
        return 0;
    }
    p->status = PLAYER_DIVERGED;
    p->divergence.kind = DIVERGED_SYNC;
    p->divergence.ordinal = p->ordinal;
    p->divergence.expected = expected;
    p->divergence.got = got;
    return 0;
}

static int read_input(struct player *p, void *data, size_t len, struct err *e)
{
    struct stream_reader *in = p->stream[STREAM_INPUTS];

    if (stream_read(in, data, len) < 0)
        return stream_error(in, e);
    p->divergence.input_len = (unsigned)(len < 8 ? len : 8);
    memcpy(p->divergence.input, data, p->divergence.input_len);
    return 0;
}

static int read_tsc(struct player *p, uint64_t *value, struct err *e)
{
    struct stream_reader *in = p->stream[STREAM_TSC];

    p->tsc += (uint64_t)stream_svarint(in);
    *value = p->tsc;
    p->divergence.input_len = 8;
    memcpy(p->divergence.input, value, 8);
    return stream_bad(in) ? stream_error(in, e) : 0;
}

/* Give the guest what it asked for at this sync point. */
static int answer(struct player *p, const struct vcpu_exit *exit, struct err *e)
{
    struct vcpu *vcpu = &p->cpu->vcpu;
    uint64_t value;
    uint8_t msr[9];

    p->divergence.input_len = 0;
    switch (exit->kind) {
    case EXIT_PIO_IN:
    case EXIT_MMIO_READ:
        return read_input(p, exit->data, (size_t)exit->size * exit->count, e);
    case EXIT_PIO_OUT:
    case EXIT_MMIO_WRITE:
        player_watch_output(p, exit);
        return 0;
    case EXIT_RDTSC:
        if (read_tsc(p, &value, e) < 0)
            return -1;
        vcpu_finish_rdtsc(vcpu, exit, value);
        return 0;
    case EXIT_RDMSR:
    case EXIT_WRMSR:
        if (read_input(p, msr, sizeof msr, e) < 0)
            return -1;
        memcpy(&value, msr, sizeof value);
        vcpu_finish_msr(vcpu, value, msr[8]);
        return 0;
    case EXIT_CR4_READ:
    case EXIT_CR4_WRITE:
        cr4_finish(vcpu, exit);
        return 0;
    case EXIT_TRAP:
        value = 0;
        if (p->cpu->trap.kind == TRAP_RDTSC && read_tsc(p, &value, e) < 0)
            return -1;
        gphook_finish(vcpu, &p->cpu->trap, value);
        return 0;
    default:
        return 0;
    }
}

static bool is_followed(const struct vcpu_exit *exit)
{
    return exit->kind == EXIT_PIO_IN || exit->kind == EXIT_PIO_OUT ||
           exit->kind == EXIT_MMIO_READ || exit->kind == EXIT_MMIO_WRITE ||
           exit->kind == EXIT_RDMSR;
}

int player_next(struct player *p, const struct event **next, struct err *e)
{
    if (player_fetch(p, e) < 0)
        return -1;
    *next = p->has_next && p->next.ordinal == p->ordinal ? &p->next : NULL;
    return 0;
}

int player_take(struct player *p, struct err *e)
{
    assert(p->has_next && p->next.ordinal == p->ordinal);
    int rc = player_apply(p, &p->next, e);
    player_consume(p);
    return rc;
}

void player_pass(struct player *p)
{
    player_consume(p);
}

/* To the next exit of the guest's own; or the status becomes another one. */
int player_run_to_exit(struct player *p, struct vcpu_exit *exit, struct err *e)
{
    static const enum player_status status_of[] = {
        [BREAKPOINT_HIT] = PLAYER_BREAK,
        [BREAKPOINT_STOPPED] = PLAYER_STOPPED,
        [BREAKPOINT_EXIT] = PLAYER_RUNNING,
    };

    p->at_sync = false;
    if (vcpu_is_halfway(&p->cpu->vcpu))
        return vcpu_run(&p->cpu->vcpu, exit, e);
    if (breakpoints_any(&p->stops)) {
        enum breakpoint_stop stop = breakpoints_run(&p->stops, exit, e);
        if (stop == BREAKPOINT_FAILED)
            return -1;
        p->status = status_of[stop];
    } else {
        p->stops.repeating = false;
        do {
            if (p->interrupted)
                p->status = PLAYER_STOPPED;
            else if (p->cpu->clock.ops->run(&p->cpu->clock, exit, e) < 0)
                return -1;
        } while (p->status == PLAYER_RUNNING && exit->kind == EXIT_KICK);
    }
    if (p->status == PLAYER_STOPPED)
        p->interrupted = false;
    if (p->status == PLAYER_RUNNING)
        gphook_arrive(&p->cpu->vcpu, &p->hook, exit, &p->cpu->trap);
    return 0;
}

int player_take_exit(struct player *p, struct vcpu_exit *exit, struct err *e)
{
    if (player_check(p, exit, e) < 0)
        return -1;
    if (p->status != PLAYER_RUNNING)
        return 0;
    if (answer(p, exit, e) < 0)
        return -1;
    return p->follower && is_followed(exit) ? p->follower->access(p->follower, exit, e) : 0;
}

static int run_to_next_sync(struct player *p, struct err *e)
{
    struct vcpu_exit exit;

    if (player_run_to_exit(p, &exit, e) < 0)
        return -1;
    return p->status == PLAYER_RUNNING ? player_take_exit(p, &exit, e) : 0;
}

/* Nothing runs where the next exit is there already. */
static bool is_to_stop(const struct player *p, uint64_t until)
{
    return !vcpu_is_halfway(&p->cpu->vcpu) &&
           ((p->pause && *p->pause) || (p->at_sync && p->ordinal >= until));
}

int player_run(struct player *p, uint64_t until, struct err *e)
{
    player_settle(p);
    if (p->status == PLAYER_STOPPED || p->status == PLAYER_BREAK)
        p->status = PLAYER_RUNNING;
    if (p->parallel)
        return player_crew_run(p, until, e);
    while (p->status == PLAYER_RUNNING) {
        if (is_to_stop(p, until)) {
            p->status = PLAYER_STOPPED;
            break;
        }
        const int applied = apply_events(p, e);
        if (applied < 0)
            return -1;
        if (applied || p->status != PLAYER_RUNNING)
            continue;
        if (!stream_left(p->stream[STREAM_SYNCS])) {
            if (recording_complete(p->recording))
                return player_bad(p, e, "it stops without an end");
            p->status = PLAYER_CUT;
        } else if (run_to_next_sync(p, e) < 0) {
            return -1;
        }
    }
    return 0;
}

int player_run_to_place(struct player *p, uint64_t until, struct err *e)
{
    int halfway = 1;

    while (halfway > 0) {
        if (player_run(p, until, e) < 0)
            return -1;
        halfway = p->status == PLAYER_STOPPED ? player_is_halfway(p, e) : 0;
    }
    return halfway;
}
