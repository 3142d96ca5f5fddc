#include "recorder/recorder.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/text.h"
#include "devices/device.h"
#include "mmu/digest.h"
#include "recorder/live_state.h"
#include "recorder/page_map.h"
#include "recorder/storer.h"
#include "recording/chunks.h"
#include "recording/doubts.h"
#include "recording/snapshot.h"
#include "recording/streams.h"
#include "recording/writer.h"

/* What a kill can lose at most. */
#define EPOCH_NS    500000000ull
#define EPOCH_BYTES (1u << 20)
/* How often it is looked whether the initial memory is stored: there is no epoch before. */
#define LOOK_NS 20000000ull
/* What of it is copied at most, to be stored behind the machine. The rest is stored before it runs.
 */
#define COPY_BYTES (256ull << 20)

struct recorder {
    struct recording_writer *writer;
    struct chunk_store *chunks;
    struct page_map *pages; /* for snapshots; NULL: none are taken */
    struct storer storer;   /* stores memory and disk behind the machine: */
    uint32_t *image;        /* the initial memory, the chunk of each page; then NULL */
    const struct guest_memory *memory;
    struct snapshot pending; /* or that of this snapshot, if is_pending */
    bool is_pending;
    struct disk_map *disk; /* NULL: nobody could go live, the disk is not an overlay */
    struct bytes names;    /* of snapshots that were given one, each with its NUL */
    char last_name[SNAPSHOT_NAME_MAX + 1];
    unsigned doubts;
    uint64_t ordinal, tsc; /* of the last sync point; the last value of an emulated RDTSC */
    struct event_codec codec;
    struct access_codec accesses;
    struct sync_point last_sync[MAX_VCPUS]; /* codec memory */
    unsigned vcpu;                          /* that runs now */
    bool window[MAX_VCPUS];                 /* what each waits for */
    uint64_t own_syncs[MAX_VCPUS];          /* its sync points so far */
    struct event_codec ahead[MAX_VCPUS];
    uint64_t outputs; /* running digest */
    uint64_t epoch_due_ns;
    struct recorder_stats stats;
    struct bytes scratch, places;
};

struct recorder *recorder_create(const char *path, bool overwrite, const char *meta, struct err *e)
{
    struct recorder *r = calloc(1, sizeof *r);

    if (!r) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    r->writer = writer_create(path, overwrite, e);
    if (r->writer)
        r->chunks = chunks_create(r->writer, e);
    r->storer.writer = r->writer;
    r->storer.chunks = r->chunks;
    if (!r->chunks || writer_meta(r->writer, meta, strlen(meta), e) < 0) {
        recorder_abort(r);
        return NULL;
    }
    return r;
}

/* Hand what is in the scratch buffer to a stream. */
static void put(struct recorder *r, unsigned stream)
{
    (void)writer_put(r->writer, stream, r->scratch.data,
                     r->scratch.len); /* recorder_epoch() says */
    bytes_clear(&r->scratch);
}

int recorder_follow_memory(struct recorder *r, struct vm *vm, struct err *e)
{
    r->pages = page_map_create(vm, e);
    return r->pages ? 0 : -1;
}

/* The pages of memory that are not zero are stored from here on, the machine may run. */
static int begin_memory(struct recorder *r, const struct guest_memory *m, struct err *e)
{
    uint64_t left = 0;

    r->memory = m;
    r->image = calloc(m->size / PAGE_BYTES, sizeof *r->image);
    if (!r->image)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (uint64_t start = 0, end; guest_memory_touched(m, &start, &end); start = end)
        left += end - start;
    for (uint64_t start = 0, end; guest_memory_touched(m, &start, &end); start = end)
        for (uint64_t at = start; at < end; at += PAGE_BYTES, left -= PAGE_BYTES) {
            uint32_t *chunk = &r->image[at / PAGE_BYTES];
            if (left > COPY_BYTES)
                *chunk = (uint32_t)chunks_add(r->chunks, m->host + at);
            else if (!page_is_zero(m->host + at))
                memcpy(page_copies_add(&r->storer.copies, chunk), m->host + at, PAGE_BYTES);
        }
    storer_begin(&r->storer);
    return 0;
}

/* They are stored: say in which chunks. */
static void end_memory(struct recorder *r)
{
    uint64_t next_gfn = 0, next_chunk = 0;

    if (!r->image)
        return;
    storer_wait(&r->storer);
    for (uint64_t page = 0; page < r->memory->size / PAGE_BYTES; page++) {
        const uint32_t chunk = r->image[page];
        const uint64_t gfn = guest_memory_gpa(r->memory, page * PAGE_BYTES) / PAGE_BYTES;
        if (chunk == CHUNK_ZERO_PAGE)
            continue;
        bytes_put_svarint(&r->scratch, (int64_t)(gfn - next_gfn));
        bytes_put_svarint(&r->scratch, (int64_t)(chunk - next_chunk));
        next_gfn = gfn + 1;
        next_chunk = chunk + 1ull;
        if (r->pages)
            page_map_initial(r->pages, page, chunk);
    }
    put(r, STREAM_IMAGE);
    free(r->image);
    r->image = NULL;
}

/* What lies in the overlay already, zeroes included: they hide what is below. */
static int put_disk(struct recorder *r, struct disk *disk, struct err *e)
{
    if (disk && !disk_is_overlay(disk))
        return 0;
    r->disk = disk_map_create(disk, e);
    if (!r->disk || disk_map_take(r->disk, &r->storer.copies, r->chunks, e) < 0)
        return -1;
    disk_map_list(r->disk, &r->scratch);
    put(r, STREAM_DISK);
    return 0;
}

int recorder_initial(struct recorder *r, const struct initial_state *initial, struct err *e)
{
    if (!r)
        return 0;
    for (unsigned i = 0; i < initial->cpu_count; i++) {
        vcpu_state_encode(&r->scratch, &initial->cpus[i].state);
        vcpu_pending_encode(&r->scratch, &initial->cpus[i].pending);
    }
    bytes_put_u8(&r->scratch, (uint8_t)(initial->dlab | initial->loopback << 1));
    for (unsigned i = 0; i < initial->cpu_count; i++)
        x87_last_encode(&r->scratch, &initial->cpus[i].state.fpu);
    put(r, STREAM_STATE);
    if (put_disk(r, initial->disk, e) < 0)
        return -1;
    (void)writer_put(r->writer, STREAM_DEVICES, initial->devices.data, initial->devices.len);
    return begin_memory(r, initial->memory, e);
}

void recorder_symbols(struct recorder *r, const struct bytes *symbols)
{
    if (r && symbols->len)
        (void)writer_put(r->writer, STREAM_SYMBOLS, symbols->data, symbols->len);
}

void recorder_doubt(struct recorder *r, const char *text)
{
    const size_t len = strlen(text);

    assert(len <= DOUBT_MAX);
    if (!r || r->doubts == DOUBTS_MAX)
        return;
    r->doubts++;
    bytes_put_varint(&r->scratch, r->ordinal);
    bytes_put_varint(&r->scratch, len);
    bytes_put(&r->scratch, text, len);
    put(r, STREAM_DOUBTS);
}

static void put_event(struct recorder *r, struct event *event)
{
    event->ordinal = r->ordinal;
    event_encode(&r->scratch, &r->codec, event);
    put(r, STREAM_EVENTS);
    r->stats.events++;
}

void recorder_sync(struct recorder *r, struct vcpu *vcpu, const struct vcpu_exit *exit)
{
    struct sync_point sync;

    if (!r)
        return;
    if (exit_is_output(exit->kind))
        r->outputs =
            output_fold(r->outputs, exit->at, exit->data, (size_t)exit->size * exit->count);
    sync = vcpu_sync_point(vcpu, exit, (uint8_t)r->outputs);
    sync_encode(&r->scratch, &r->last_sync[vcpu->index], &sync);
    put(r, STREAM_SYNCS);
    r->ordinal++;
    r->own_syncs[vcpu->index]++;
    r->stats.syncs++;
}

void recorder_input(struct recorder *r, const void *data, size_t len)
{
    if (!r)
        return;
    (void)writer_put(r->writer, STREAM_INPUTS, data, len);
    r->stats.inputs++;
}

void recorder_tsc(struct recorder *r, uint64_t value)
{
    if (!r)
        return;
    bytes_put_svarint(&r->scratch, (int64_t)(value - r->tsc));
    r->tsc = value;
    put(r, STREAM_TSC);
    r->stats.inputs++;
}

void recorder_interrupt(struct recorder *r, uint8_t vector)
{
    struct event event = {.kind = EVENT_INJECT, .vector = vector};

    if (r)
        put_event(r, &event);
}

void recorder_window(struct recorder *r, bool want)
{
    struct event event = {.kind = EVENT_WINDOW, .window = want};

    if (!r)
        return;
    put_event(r, &event);
    r->window[r->vcpu] = want;
}

void recorder_schedule(struct recorder *r, unsigned vcpu)
{
    struct event event = {.kind = EVENT_SCHEDULE, .vcpu = vcpu};

    if (!r)
        return;
    put_event(r, &event);
    r->vcpu = vcpu;
}

void recorder_start(struct recorder *r, uint8_t vector)
{
    struct event event = {.kind = EVENT_START, .vector = vector};

    if (!r)
        return;
    put_event(r, &event);
    r->window[r->vcpu] = false;
}

void recorder_nmi(struct recorder *r)
{
    struct event event = {.kind = EVENT_NMI};

    if (r)
        put_event(r, &event);
}

void recorder_tsd_set(struct recorder *r)
{
    struct event event = {.kind = EVENT_TSD};

    if (r)
        put_event(r, &event);
}

void recorder_cr8(struct recorder *r, uint8_t cr8)
{
    struct event event = {.kind = EVENT_CR8, .cr8 = cr8};

    if (r)
        put_event(r, &event);
}

void recorder_hook(struct recorder *r, const struct gp_hook *hook)
{
    struct event event = {.kind = EVENT_HOOK, .hook = *hook};

    if (r)
        put_event(r, &event);
}

void recorder_time(struct recorder *r, uint64_t now_ns)
{
    struct event event = {.kind = EVENT_TIME, .time_ns = now_ns};

    if (r)
        put_event(r, &event);
}

void recorder_received(struct recorder *r, const uint8_t *data, size_t len)
{
    struct event event = {.kind = EVENT_RECEIVED, .received = {.len = (uint8_t)len}};

    if (!r || !len)
        return;
    assert(len <= RECEIVED_MAX);
    memcpy(event.received.data, data, len);
    put_event(r, &event);
}

void recorder_frame(struct recorder *r, unsigned nic, uint64_t now_ns, uint32_t len,
                    const struct net_segment *segment, unsigned count)
{
    struct event event = {.kind = EVENT_FRAME};
    struct frame_place last = {0};

    if (!r)
        return;
    bytes_clear(&r->places);
    for (unsigned i = 0; i < count; i++)
        frame_put_place(&r->places, &last,
                        &(struct frame_place){.gpa = segment[i].gpa, .len = segment[i].len});
    event.frame = (struct frame){
        .nic = nic,
        .is_sent = segment != NULL,
        .len = len,
        .time_ns = now_ns,
        .places = count,
        .place_list = r->places.data,
        .place_list_bytes = r->places.len,
    };
    put_event(r, &event);
}

void recorder_frame_waits(struct recorder *r, unsigned nic, uint64_t now_ns)
{
    struct event event = {.kind = EVENT_FRAME,
                          .frame = {.nic = nic, .is_sent = true, .time_ns = now_ns}};

    if (r)
        put_event(r, &event);
}

void recorder_disk_done(struct recorder *r, unsigned disk, unsigned count)
{
    struct event event = {.kind = EVENT_DISK_DONE, .disk_done = {.disk = disk, .count = count}};

    if (r)
        put_event(r, &event);
}

bool recorder_mark(struct recorder *r, const char *text, bool by_guest, uint64_t now_ns)
{
    struct event event = {.kind = EVENT_MARK, .mark = {.by_guest = by_guest, .time_ns = now_ns}};

    if (!r || r->stats.marks == MARKS_MAX)
        return false;
    event.mark.len = (uint8_t)text_fitting(text, MARK_MAX);
    memcpy(event.mark.text, text, event.mark.len);
    put_event(r, &event);
    r->stats.marks++;
    return true;
}

void recorder_boot(struct recorder *r, const struct initial_vcpu *cpus, unsigned count,
                   uint64_t now_ns)
{
    struct bytes states = {0};

    if (!r)
        return;
    for (unsigned i = 0; i < count; i++) {
        vcpu_state_encode(&states, &cpus[i].state);
        vcpu_pending_encode(&states, &cpus[i].pending);
        x87_last_encode(&states, &cpus[i].state.fpu);
        r->window[i] = false;
    }
    struct event event = {
        .kind = EVENT_BOOT,
        .boot = {.time_ns = now_ns, .state = states.data, .state_len = states.len},
    };
    put_event(r, &event);
    bytes_free(&states);
    r->vcpu = 0;
}

void recorder_access(struct recorder *r, const struct access *access)
{
    if (!r)
        return;
    access_encode(&r->scratch, &r->accesses, access);
    put(r, STREAM_ACCESSES);
}

void recorder_forced(struct recorder *r, const struct landmark *landmark)
{
    struct event event = {.kind = EVENT_FORCED, .landmark = *landmark};

    if (!r)
        return;
    put_event(r, &event);
    r->stats.forced++;
}

static void put_ahead(struct recorder *r, unsigned vcpu, struct event *event)
{
    event->ordinal = r->own_syncs[vcpu];
    event_encode(&r->scratch, &r->ahead[vcpu], event);
    put(r, STREAM_AHEAD + vcpu);
}

void recorder_forced_ahead(struct recorder *r, unsigned vcpu, const struct landmark *landmark)
{
    struct event event = {.kind = EVENT_FORCED, .landmark = *landmark};

    if (!r)
        return;
    put_ahead(r, vcpu, &event);
    r->stats.forced++;
}

void recorder_rest(struct recorder *r)
{
    struct event event = {.kind = EVENT_REST};

    if (r)
        put_event(r, &event);
}

void recorder_regain(struct recorder *r, bool all)
{
    struct event event = {.kind = EVENT_REGAIN, .all = all};

    if (r)
        put_event(r, &event);
}

void recorder_endless(struct recorder *r, unsigned vcpu)
{
    struct event event = {.kind = EVENT_REST};

    if (r)
        put_ahead(r, vcpu, &event);
}

static int state_digest(struct recorder *r, struct vm *vm, struct state_digest *digest,
                        struct err *e)
{
    struct page_sums sums;

    /* A replay may have completed the instruction that exited, to make a checkpoint here. */
    if (vcpus_digest(vm, &digest->cpu, e) < 0)
        return -1;
    digest->memory = memory_digest(&vm->memory, &sums);
    digest->outputs = r->outputs;
    bytes_put_u64(&r->scratch, digest->memory);
    page_sums_encode(&r->scratch, &sums);
    put(r, STREAM_PAGE_SUMS);
    return 0;
}

int recorder_digest(struct recorder *r, struct vm *vm, struct err *e)
{
    struct event event = {.kind = EVENT_DIGEST};

    if (!r)
        return 0;
    if (state_digest(r, vm, &event.digest, e) < 0)
        return -1;
    put_event(r, &event);
    return 0;
}

/* ---- snapshots ---- */

/* 0: not here, in the middle of an instruction. */
static int take_mark(const struct recorder *r, struct vm *vm, struct player_mark *mark,
                     const struct recorder_state *state, struct err *e)
{
    *mark = (struct player_mark){
        .cpu = r->vcpu,
        .at_sync = true,
        .codec = r->codec,
        .ordinal = r->ordinal,
        .tsc = r->tsc,
        .hook = state->hook,
        .outputs = r->outputs,
        .dlab = state->dlab,
        .loopback = state->loopback,
    };
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        mark->at[kind] = writer_tell(r->writer, kind);
    for (; mark->cpu_count < MAX_VCPUS && vm->vcpu[mark->cpu_count]; mark->cpu_count++) {
        struct vcpu *vcpu = vm->vcpu[mark->cpu_count];
        struct cpu_mark *cpu = &mark->cpus[mark->cpu_count];
        cpu->window = r->window[vcpu->index];
        cpu->last_sync = r->last_sync[vcpu->index];
        if (vcpu_complete(vcpu, e) < 0 || vcpu_state_get(vcpu, &cpu->state, e) < 0 ||
            vcpu_pending_get(vcpu, &cpu->pending, e) < 0)
            return -1;
        if (vcpu_is_halfway(vcpu))
            return 0;
    }
    return 1;
}

bool recorder_can_snapshot(const struct recorder *r)
{
    return r->pages && !r->image && !r->is_pending && r->ordinal &&
           r->codec.ordinal != r->ordinal && r->stats.snapshots < SNAPSHOTS_MAX;
}

uint64_t recorder_syncs(const struct recorder *r)
{
    return r->ordinal;
}

bool recorder_snapshot_name_is_free(const struct recorder *r, const char *name)
{
    const char *at = (const char *)r->names.data;
    uint64_t number;

    for (size_t done = 0; done < r->names.len; done += strlen(at + done) + 1)
        if (!strcmp(at + done, name))
            return false;
    return parse_number(name, UINT64_MAX, &number) < 0;
}

const char *recorder_snapshot_name(const struct recorder *r)
{
    return r->last_name;
}

int recorder_snapshot(struct recorder *r, struct vm *vm, const struct recorder_state *state,
                      struct err *e)
{
    const struct bytes none = {0};
    struct snapshot *s = &r->pending;

    if (!recorder_can_snapshot(r))
        return 0;
    if (state->name[0])
        snprintf(s->name, sizeof s->name, "%s", state->name);
    else
        snprintf(s->name, sizeof s->name, "%" PRIu64, r->stats.snapshots + 1);
    const int taken = take_mark(r, vm, &s->mark, state, e);
    if (taken <= 0)
        return taken;
    if (page_map_take(r->pages, &r->storer.copies, e) < 0)
        return -1;
    if (r->disk && state->devices) {
        live_state_begin(&s->live, state->devices, &none);
        if (disk_map_take(r->disk, &r->storer.copies, NULL, e) < 0)
            return -1;
    }
    s->new_chunks = chunks_stored(r->chunks); /* which it is without */
    storer_begin(&r->storer);
    r->is_pending = true;
    r->stats.snapshots++;
    if (state->name[0])
        bytes_put(&r->names, s->name, strlen(s->name) + 1);
    memcpy(r->last_name, s->name, sizeof r->last_name);
    return 1;
}

static void end_snapshot(struct recorder *r)
{
    struct snapshot *s = &r->pending;

    if (!r->is_pending)
        return;
    storer_wait(&r->storer);
    s->new_chunks = chunks_stored(r->chunks) - s->new_chunks;
    page_map_list(r->pages, s);
    if (s->live.len)
        disk_map_list(r->disk, &s->live);
    snapshot_bound_live(s);
    snapshot_encode(&r->scratch, s);
    put(r, STREAM_SNAPSHOTS);
    snapshot_free(s);
    r->is_pending = false;
}

/* ---- DMA ---- */

void recorder_dma(struct recorder *r, bool write, uint64_t gpa, const uint8_t *data, size_t len)
{
    while (len) {
        struct event event = {.kind = write ? EVENT_DMA_WRITE : EVENT_DMA_READ};
        struct dma_transfer *dma = &event.dma;
        dma->gpa = gpa;
        dma->len = (uint32_t)(len < DMA_MAX ? len : DMA_MAX);
        dma->data = data;
        if (!write)
            r->outputs = output_fold(r->outputs, gpa, data, dma->len);
        for (uint32_t at = 0; write && dma->len > DMA_INLINE_MAX && at < dma->len; at += 4096) {
            uint32_t n = dma->len - at < 4096 ? dma->len - at : 4096;
            dma->chunks[at / 4096] = chunks_add_piece(r->chunks, data + at, n);
        }
        put_event(r, &event);
        gpa += dma->len;
        data += dma->len;
        len -= dma->len;
    }
}

/* ---- the file ---- */

int recorder_epoch(struct recorder *r, uint64_t now_ns, struct err *e)
{
    if (!r)
        return 0;
    if (now_ns < r->epoch_due_ns && writer_pending(r->writer) < EPOCH_BYTES)
        return 0;
    if (r->image && !storer_is_idle(&r->storer)) {
        r->epoch_due_ns = now_ns + LOOK_NS;
        return 0;
    }
    end_memory(r);
    if (storer_is_idle(&r->storer))
        end_snapshot(r);
    r->epoch_due_ns = now_ns + EPOCH_NS;
    return writer_epoch(r->writer, e);
}

uint64_t recorder_epoch_due(const struct recorder *r)
{
    return r && writer_pending(r->writer) ? r->epoch_due_ns : NEVER;
}

int recorder_end(struct recorder *r, struct vm *vm, enum end_reason reason, bool with_digest,
                 struct err *e)
{
    struct event event = {.kind = EVENT_END, .end = {.reason = reason, .has_digest = with_digest}};

    if (!r)
        return 0;
    if (with_digest && state_digest(r, vm, &event.end.digest, e) < 0)
        return -1;
    put_event(r, &event);
    r->stats.end = event.end.digest;
    return 0;
}

void recorder_stats(const struct recorder *r, struct recorder_stats *stats)
{
    *stats = r ? r->stats : (struct recorder_stats){0};
}

int recorder_finish(struct recorder *r, enum end_reason reason, const char *text, struct err *e)
{
    if (!r)
        return 0;
    end_memory(r);
    end_snapshot(r);
    int rc = writer_finish(r->writer, (uint32_t)reason,
                           text && text[0] ? text : end_reason_text(reason), e);
    r->writer = NULL;
    recorder_abort(r);
    return rc;
}

void recorder_abort(struct recorder *r)
{
    if (!r)
        return;
    storer_wait(&r->storer);
    page_copies_free(&r->storer.copies);
    free(r->image);
    snapshot_free(&r->pending);
    page_map_destroy(r->pages);
    disk_map_destroy(r->disk);
    chunks_destroy(r->chunks);
    writer_abort(r->writer);
    bytes_free(&r->scratch);
    bytes_free(&r->places);
    bytes_free(&r->names);
    free(r);
}
