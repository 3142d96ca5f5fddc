/* From a recording to a machine at its beginning: the image, the state of the vCPUs, the streams.
 */
#include <stdlib.h>
#include <string.h>

#include "recording/meta.h"
#include "recording/streams.h"
#include "replay/player_inside.h"
#include "vmm/kvm/vcpu_state.h"

uint32_t *player_image(struct player *p, struct err *e)
{
    const uint64_t pages = p->vm.memory.size / PAGE_BYTES;
    uint32_t *image = calloc(pages, sizeof *image);
    struct stream_reader *in = stream_open(p->recording, STREAM_IMAGE, e);
    uint64_t gfn = 0, chunk = 0;
    int rc = image ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    while (in && rc == 0 && stream_left(in)) {
        gfn += (uint64_t)stream_svarint(in);
        chunk += (uint64_t)stream_svarint(in);
        const uint8_t *page = gfn <= UINT64_MAX / PAGE_BYTES
                                  ? guest_memory_at(&p->vm.memory, gfn * PAGE_BYTES, PAGE_BYTES)
                                  : NULL;
        if (stream_bad(in))
            rc = stream_error(in, e);
        else if (!page || chunk > CHUNK_MAX_ID)
            rc = player_bad(p, e, "a page of its image lies outside memory");
        else
            image[(page - p->vm.memory.host) / PAGE_BYTES] = (uint32_t)chunk;
        gfn++;
        chunk++;
    }
    if (in && rc == 0) {
        stream_close(in);
        return image;
    }
    if (in)
        stream_close(in);
    free(image);
    return NULL;
}

static int load_image(struct player *p, struct err *e)
{
    const uint64_t pages = p->vm.memory.size / PAGE_BYTES;
    uint32_t *image = player_image(p, e);
    int rc = image ? 0 : -1;
    size_t len;

    for (uint64_t page = 0; page < pages && rc == 0; page++)
        if (image[page])
            rc = chunk_read(p->chunks, image[page], p->vm.memory.host + page * PAGE_BYTES, &len, e);
    free(image);
    return rc;
}

/* Of the bytes of STREAM_STATE. */
static bool decode_state(struct player *p, struct cursor *in, struct cpu_mark *cpus)
{
    const bool has_mxcsr = recording_version(p->recording) >= RECORDING_MXCSR;

    for (unsigned i = 0; i < p->cpu_count && !in->bad; i++) {
        vcpu_state_decode(in, &cpus[i].state);
        vcpu_pending_decode(in, &cpus[i].pending);
        if (!has_mxcsr)
            cpus[i].state.fpu.mxcsr = MXCSR_RESET;
    }
    const uint8_t uart = cursor_u8(in);
    p->dlab = uart & 1;
    p->loopback = uart & 2;
    for (unsigned i = 0; i < p->cpu_count && has_mxcsr; i++)
        x87_last_decode(in, &cpus[i].state.fpu);
    return !in->bad && uart <= 3;
}

static int load_state(struct player *p, struct err *e)
{
    struct stream_reader *in = stream_open(p->recording, STREAM_STATE, e);
    struct cpu_mark cpus[MAX_VCPUS];
    size_t got;
    int rc = 0;

    if (!in)
        return -1;
    const uint8_t *data = stream_peek(in, STREAM_MAX_PEEK, &got);
    struct cursor c = cursor_of(data, data ? got : 0);
    if (!decode_state(p, &c, cpus))
        rc = player_bad(p, e, "it has no initial CPU state");
    for (unsigned i = 0; i < p->cpu_count && rc == 0; i++) {
        struct vcpu *vcpu = &p->cpus[i].vcpu;
        if (vcpu_state_set(vcpu, &cpus[i].state, e) < 0 ||
            vcpu_pending_set(vcpu, &cpus[i].pending, e) < 0 ||
            vcpu_complete(vcpu, e) < 0) /* for what KVM says in kvm_run about interrupts */
            rc = -1;
    }
    stream_close(in);
    return rc;
}

/* Also p->cpu_count, p->parallel, p->owns_tsd, p->mxcsr_mask, p->frame_rf and p->runs_command. */
static int read_meta(struct player *p, uint64_t *memory, bool *counted, struct err *e)
{
    json_t *meta = meta_load(p->recording, e);
    const char *clock = meta_clock(meta);
    const struct clock_ops *ops = clock ? clock_find(clock) : NULL;
    int rc = 0;

    if (!meta)
        return -1;
    *memory = meta_memory(meta);
    *counted = ops && ops->counts;
    p->cpu_count = meta_cpus(meta);
    p->owns_tsd = meta_owns_tsd(meta);
    p->mxcsr_mask = meta_mxcsr_mask(meta);
    p->frame_rf = frame_rf_named(meta_frame_rf(meta));
    p->parallel = meta_is_crew(meta);
    p->runs_command = meta_command(meta) != NULL;
    if (!p->cpu_count)
        rc = err_set(e, STATUS_BAD_RECORDING,
                     "%s does not have 1 to %u CPUs, as this dittovm replays",
                     recording_path(p->recording), MAX_VCPUS);
    else if (!clock)
        rc = player_bad(p, e, "its description of the machine is incomplete");
    else if (!ops)
        rc = err_set(e, STATUS_BAD_RECORDING, "%s was made with a clock that is not known: '%.32s'",
                     recording_path(p->recording), clock);
    json_decref(meta);
    return rc;
}

static int open_streams(struct player *p, struct err *e)
{
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++) {
        p->stream[kind] = stream_open(p->recording, kind, e);
        if (!p->stream[kind])
            return -1;
    }
    return 0;
}

/*
 * A recording made with a counting clock has the counts that another one needs; one made without
 * has none, but a landmark is in every recording, and the stepping clock needs no more.
 */
static int open_clock(struct player *p, struct player_cpu *cpu, const struct clock_ops *clock,
                      bool counted, struct err *e)
{
    if (clock && clock->needs_count && !counted)
        return err_set(e, STATUS_ERROR,
                       "%s was made without counting branches; replay it with --clock landmark",
                       recording_path(p->recording));
    if (!clock && !counted)
        clock = &clock_landmark;
    if (clock_open(&cpu->clock, clock, &cpu->vcpu, &p->hook, e) < 0)
        return -1;
    cpu->clock.replaying = true;
    return 0;
}

static int open_cpus(struct player *p, const struct clock_ops *clock, bool counted, struct err *e)
{
    for (unsigned i = 0; i < p->cpu_count; i++) {
        struct player_cpu *cpu = &p->cpus[i];
        if (vcpu_create(&cpu->vcpu, p->parallel ? &p->views.vm[i] : &p->vm, i, p->cpu_count, e) < 0)
            return -1;
        cpu->vcpu.owns_tsd = p->owns_tsd;
        cpu->vcpu.bare_rdtsc = recording_version(p->recording) < RECORDING_RDTSC_PREFIXES;
        cpu->vcpu.steps_at_any_window =
            p->parallel || recording_version(p->recording) < RECORDING_COMPLETES_FIRST;
        cpu->vcpu.without_mxcsr = recording_version(p->recording) < RECORDING_MXCSR;
        if (open_clock(p, cpu, clock, counted, e) < 0)
            return -1;
        stepper_init(&cpu->stepper, &cpu->vcpu);
    }
    breakpoints_init(&p->stops, &p->cpu->vcpu, &p->hook);
    p->stops.interrupted = &p->interrupted;
    return 0;
}

static int open_machine(struct player *p, const struct clock_ops *clock, struct err *e)
{
    uint64_t memory;
    bool counted;

    p->chunks = chunk_source_open(p->recording, e);
    if (!p->chunks || read_meta(p, &memory, &counted, e) < 0 || open_streams(p, e) < 0)
        return -1;
    if (vm_create(&p->vm, memory, e) < 0)
        return -1;
    p->vm.memory.digest_by_xxh3 = recording_version(p->recording) < RECORDING_XXH64;
    if (p->parallel && views_create(&p->views, &p->vm, p->cpu_count, true, e) < 0)
        return -1;
    if (open_cpus(p, clock, counted, e) < 0 || load_image(p, e) < 0 || load_state(p, e) < 0)
        return -1;
    return p->parallel ? player_crew_open(p, e) : 0;
}

int player_open(struct player *p, struct recording *recording, const struct clock_ops *clock,
                struct err *e)
{
    *p = (struct player){
        .recording = recording,
        .vm = {.fd = -1, .kvm_fd = -1},
        .at_sync = true,
    };
    for (unsigned i = 0; i < MAX_VCPUS; i++)
        p->cpus[i].vcpu.fd = -1;
    p->cpu = p->cpus;
    if (open_machine(p, clock, e) < 0) {
        player_close(p);
        return -1;
    }
    return 0;
}

void player_close(struct player *p)
{
    player_settle(p);
    for (unsigned i = 0; i < MAX_VCPUS; i++) {
        clock_close(&p->cpus[i].clock);
        vcpu_destroy(&p->cpus[i].vcpu);
        if (p->cpus[i].ahead)
            stream_close(p->cpus[i].ahead);
    }
    views_destroy(&p->views);
    vm_destroy(&p->vm);
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        if (p->stream[kind])
            stream_close(p->stream[kind]);
    if (p->chunks)
        chunk_source_close(p->chunks);
    landing_log_free(&p->landings);
    *p = (struct player){0};
}
