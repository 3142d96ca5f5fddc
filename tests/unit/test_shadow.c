/*
 * vmm/shadow.c: devices that follow a recording are those that were recorded.
 *
 * A set of devices is used at random and recorded, as a machine would; the recording file is then
 * read back and a second set follows it. There is no vCPU in this: the test is the guest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder/live_state.h"
#include "recorder/recorder.h"
#include "recorder/streams.h"
#include "replay/player_inside.h"
#include "replay/snapshot_adder.h"
#include "vmm/shadow.h"

#define MEMORY     (16u << 20)
#define DISK_BYTES (256u << 10)
#define EPOCH_NS   1700000000123456789ull

#define BAR_BYTES 0x4000u
#define BLK       0xc0000000ull
#define RNG       (BLK + BAR_BYTES)
#define QUEUE     16u

/* Where a device's ring and its buffers lie in memory. */
struct ring {
    uint64_t bar, base; /* descriptors at base, available at +0x1000, used at +0x2000 */
    uint16_t available;
};

/* The guest, and what its accesses go to. */
struct guest {
    uint64_t random;
    struct guest_memory memory;
    struct ring blk, rng;
    void (*access)(struct guest *g, struct vcpu_exit *exit);
    void (*pass)(struct guest *g); /* between two accesses */
    /* When it is recorded. */
    struct pc pc;
    struct recorded_dma dma;
    struct recorder *recorder;
    struct vcpu vcpu;
    struct kvm_regs regs;
    uint64_t now, random_time;
    bool window;
    /* When it is replayed. */
    struct player player;
    struct shadow shadow;
    struct err e;
    bool failed;
    void (*at_step)(struct guest *g, unsigned step); /* NULL: nothing */
    void (*at_hold)(struct guest *g);                /* before an access is served */
    struct disk *disk;                               /* of the shadow, for at_step */
};

static char path[] = "/tmp/ditto-shadow-XXXXXX";

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

/* ---- the disk: an array, with an overlay over it ---- */

static uint8_t image[DISK_BYTES];

static int image_read(struct disk *disk, uint64_t offset, void *data, size_t len)
{
    (void)disk;
    memcpy(data, image + offset, len);
    return 0;
}

static void image_close(struct disk *disk)
{
    (void)disk;
}

static const struct disk_ops image_ops = {.read = image_read, .close = image_close};

static struct disk *make_disk_of(uint64_t size)
{
    static struct disk base = {.ops = &image_ops, .read_only = true};
    struct err e;

    base.size = size;
    struct disk *disk = disk_overlay_new(&base, &e);
    assert_non_null(disk);
    return disk;
}

static struct disk *make_disk(void)
{
    return make_disk_of(DISK_BYTES);
}

/* ---- the guest ---- */

static void do_access(struct guest *g, enum exit_kind kind, uint64_t at, unsigned size,
                      unsigned count, uint64_t value)
{
    uint8_t data[64] = {0};
    struct vcpu_exit exit = {.kind = kind, .at = at, .size = size, .count = count, .data = data};

    assert_true(size * count <= sizeof data);
    for (unsigned i = 0; i < count; i++)
        memcpy(data + i * size, &value, size);
    g->access(g, &exit);
    g->pass(g);
}

static void out(struct guest *g, uint64_t port, unsigned size, uint64_t value)
{
    do_access(g, EXIT_PIO_OUT, port, size, 1, value);
}

static void mmio_out(struct guest *g, uint64_t at, unsigned size, uint64_t value)
{
    do_access(g, EXIT_MMIO_WRITE, at, size, 1, value);
}

static void put(struct guest *g, uint64_t gpa, unsigned size, uint64_t value)
{
    memcpy(g->memory.host + gpa, &value, size);
}

static void put_descriptor(struct guest *g, const struct ring *r, unsigned index, uint64_t gpa,
                           uint32_t len, unsigned flags)
{
    const uint64_t at = r->base + 16 * index;

    put(g, at, 8, gpa);
    put(g, at + 8, 4, len);
    put(g, at + 12, 2, flags);
    put(g, at + 14, 2, (index + 1) % QUEUE);
}

/* What a driver does up to DRIVER_OK (Virtio 1.2, section 3.1). */
static void drive(struct guest *g, struct ring *r)
{
    r->available = 0;
    memset(g->memory.host + r->base, 0, 0x3000);
    mmio_out(g, r->bar + COMMON_STATUS, 1, 0);
    mmio_out(g, r->bar + COMMON_STATUS, 1, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    mmio_out(g, r->bar + COMMON_ACCEPTED_SELECT, 4, 1);
    mmio_out(g, r->bar + COMMON_ACCEPTED, 4, VIRTIO_F_VERSION_1 >> 32);
    mmio_out(g, r->bar + COMMON_STATUS, 1, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK);
    mmio_out(g, r->bar + COMMON_QUEUE_SELECT, 2, 0);
    mmio_out(g, r->bar + COMMON_QUEUE_SIZE, 2, QUEUE);
    mmio_out(g, r->bar + COMMON_QUEUE_DESC, 4, r->base);
    mmio_out(g, r->bar + COMMON_QUEUE_AVAIL, 4, r->base + 0x1000);
    mmio_out(g, r->bar + COMMON_QUEUE_USED, 4, r->base + 0x2000);
    mmio_out(g, r->bar + COMMON_QUEUE_ENABLE, 2, 1);
    mmio_out(g, r->bar + COMMON_STATUS, 1,
             VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK | VIRTIO_DRIVER_OK);
}

static void make_available(struct guest *g, struct ring *r, unsigned head)
{
    put(g, r->base + 0x1004 + 2 * (r->available % QUEUE), 2, head);
    put(g, r->base + 0x1002, 2, ++r->available);
}

/* A request of the disk. Its data may lie anywhere, the device's own rings included: then what the
 * device does next depends on what it has just written. */
static void use_disk(struct guest *g)
{
    static const uint32_t types[] = {VIRTIO_BLK_T_IN,  VIRTIO_BLK_T_IN,     VIRTIO_BLK_T_OUT,
                                     VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_GET_ID, 77};
    const uint64_t r = next(&g->random), header = 0x100000, status = header + 64;
    const unsigned requests = 1 + r % 3;

    for (unsigned i = 0; i < requests; i++) {
        const uint64_t rr = next(&g->random);
        const uint32_t type = types[rr % 6], sectors = 1 + (rr >> 8) % 200;
        const uint64_t data =
            (rr >> 20) % 16 ? 0x200000 + (rr >> 24) % 0x100000 : g->blk.base + (rr >> 24) % 0x2800;
        put(g, header + 16 * i, 4, type);
        put(g, header + 16 * i + 8, 8, (rr >> 44) % (DISK_BYTES / 512));
        put_descriptor(g, &g->blk, 3 * i, header + 16 * i, 16, 1);
        put_descriptor(g, &g->blk, 3 * i + 1, data, 512 * sectors,
                       type == VIRTIO_BLK_T_OUT ? 1 : 3);
        put_descriptor(g, &g->blk, 3 * i + 2, status + i, 1, 2);
        for (unsigned k = 0; type == VIRTIO_BLK_T_OUT && k < 64; k++)
            put(g, data + k * sectors * 8, 8, next(&g->random));
        make_available(g, &g->blk, 3 * i);
    }
    mmio_out(g, BLK + VIRTIO_PCI_NOTIFY, 2, 0);
}

static void use_entropy(struct guest *g)
{
    const uint64_t r = next(&g->random);

    put_descriptor(g, &g->rng, 0, 0x400000 + r % 0x10000, 1 + (r >> 20) % 9000, 3);
    put_descriptor(g, &g->rng, 1, 0x480000 + r % 0x10000, 1 + (r >> 36) % 100, 2);
    make_available(g, &g->rng, 0);
    mmio_out(g, RNG + VIRTIO_PCI_NOTIFY, 2, 0);
}

static void use_port(struct guest *g)
{
    static const struct {
        uint16_t first, count;
    } ports[] = {{0x20, 2}, {0xa0, 2}, {0x40, 4},  {0x40, 4},  {0x61, 1},  {0x70, 2}, {0x70, 2},
                 {0x64, 1}, {0x92, 1}, {0x3f8, 8}, {0x3f8, 8}, {0x600, 6}, {0x608, 4}};
    const uint64_t r = next(&g->random);
    const unsigned which = r % (sizeof ports / sizeof *ports);
    const unsigned count = (r >> 8) % 8 ? 1 : 1 + (r >> 12) % 4;
    const unsigned size = ports[which].first == 0x608 ? 4 : 1;
    const uint64_t port = ports[which].first + (size == 1 ? (r >> 16) % ports[which].count : 0);

    /* The modes and masks that shut everything up would soon be the end of it. */
    if (r >> 20 & 1 || port == 0x64 || port == 0x92)
        do_access(g, EXIT_PIO_IN, port, size, count, 0);
    else if (port == 0x20 || port == 0xa0)
        out(g, port, 1, 0x20);
    else if (port == 0x21 || port == 0xa1)
        out(g, port, 1, (r >> 24) & (r >> 32) & (r >> 40) & 0xff);
    else
        do_access(g, EXIT_PIO_OUT, port, size, count, r >> 24 & (port >= 0x600 ? 0xdfff : 0xff));
}

static void initialize(struct guest *g)
{
    static const uint8_t words[] = {0x11, 0x20, 0x04, 0x01}; /* ICW1 to 4 */

    for (unsigned i = 0; i < 4; i++)
        out(g, i ? 0x21 : 0x20, 1, words[i]);
    for (unsigned i = 0; i < 4; i++)
        out(g, i ? 0xa1 : 0xa0, 1, i == 1 ? 0x28 : i == 2 ? 2 : words[i]);
    out(g, 0x21, 1, 0);
    out(g, 0xa1, 1, 0);
    out(g, 0x3fc, 1, 0x0b);
    drive(g, &g->blk);
    drive(g, &g->rng);
}

static void run_guest(struct guest *g, uint64_t seed, unsigned steps)
{
    g->random = seed;
    g->blk = (struct ring){.bar = BLK, .base = 0x10000};
    g->rng = (struct ring){.bar = RNG, .base = 0x20000};
    initialize(g);
    for (unsigned i = 0; i < steps && !g->failed; i++) {
        if (g->at_step)
            g->at_step(g, i);
        const uint64_t r = next(&g->random);
        if (r % 64 == 0)
            drive(g, r >> 8 & 1 ? &g->blk : &g->rng);
        else if (r % 8 == 0)
            use_disk(g);
        else if (r % 32 == 1)
            use_entropy(g);
        else if (r % 8 == 2)
            do_access(g, EXIT_MMIO_READ, (r >> 8 & 1 ? BLK : RNG) + (r >> 9 & 1) * VIRTIO_PCI_ISR,
                      4, 1, 0);
        else
            use_port(g);
    }
}

/* ---- recorded ---- */

static void some_entropy(void *opaque, void *buf, size_t len)
{
    struct guest *g = opaque;

    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (uint8_t)next(&g->random_time);
}

static void no_request(void *opaque, enum machine_request request)
{
    (void)opaque;
    (void)request;
}

static void record_access(struct guest *g, struct vcpu_exit *exit)
{
    g->regs.rax = next(&g->random_time);
    recorder_sync(g->recorder, &g->vcpu, exit);
    g->now += next(&g->random_time) % 60000;
    if (pc_serve(&g->pc, exit, g->now))
        recorder_time(g->recorder, g->now);
    if (exit->kind == EXIT_PIO_IN || exit->kind == EXIT_MMIO_READ)
        recorder_input(g->recorder, exit->data, (size_t)exit->size * exit->count);
}

/* As the run loop of a machine: time passes, keys are pressed, interrupts are taken. */
static void record_pass(struct guest *g)
{
    const uint64_t r = next(&g->random_time);

    g->now += r % 16 ? r % 200000 : r % 80000000;
    if (pc_deadline(&g->pc, g->now) <= g->now) {
        pc_poll(&g->pc, g->now);
        recorder_time(g->recorder, g->now);
    }
    if (r >> 32 & 1) {
        uint8_t keys[SERIAL_FIFO_BYTES];
        memcpy(keys, &r, sizeof r);
        memcpy(keys + 8, &r, sizeof r);
        recorder_received(g->recorder, keys,
                          serial_receive(&g->pc.serial, keys, 1 + (r >> 33) % 16));
    }
    bool pending = irqchip_pending(&g->pc.irqchip);
    if (pending && r >> 40 & 3) {
        recorder_interrupt(g->recorder, irqchip_acknowledge(&g->pc.irqchip));
        pending = irqchip_pending(&g->pc.irqchip);
    }
    if (pending != g->window)
        recorder_window(g->recorder, pending);
    g->window = pending;
}

static void record(struct guest *g, struct disk *disk, uint64_t seed, unsigned steps)
{
    struct initial_vcpu cpu = {0};
    struct err e;

    *g = (struct guest){.access = record_access, .pass = record_pass, .random_time = seed + 1};
    g->vcpu.regs = &g->regs;
    assert_int_equal(guest_memory_create(&g->memory, MEMORY, &e), 0);
    g->recorder = recorder_create(path, true, "{}", &e);
    assert_non_null(g->recorder);
    recorded_dma_init(&g->dma, &g->memory, g->recorder);
    const struct pc_config config = {
        .dma = &g->dma.dma,
        .disk = disk,
        .epoch_ns = EPOCH_NS,
        .entropy = some_entropy,
        .request = no_request,
        .cpus = 1,
        .opaque = g,
    };
    assert_int_equal(pc_init(&g->pc, &config, &e), 0);
    struct initial_state initial = {
        .memory = &g->memory, .cpus = &cpu, .cpu_count = 1, .disk = disk};
    pc_save(&g->pc, &initial.devices);
    assert_int_equal(recorder_initial(g->recorder, &initial, &e), 0);
    bytes_free(&initial.devices);
    run_guest(g, seed, steps);
    if (recorder_finish(g->recorder, END_STOPPED, &e) < 0)
        fail_msg("%s", e.text);
}

/* ---- replayed ---- */

static void fail_replay(struct guest *g, int rc)
{
    if (rc < 0)
        g->failed = true;
}

static void replay_access(struct guest *g, struct vcpu_exit *exit)
{
    struct player *p = &g->player;

    if (g->failed)
        return;
    p->ordinal++;
    p->cpu->last_sync = (struct sync_point){
        .kind = exit->kind, .at = exit->at, .size = (uint8_t)exit->size, .count = exit->count};
    if (exit->kind == EXIT_PIO_IN || exit->kind == EXIT_MMIO_READ)
        assert_int_equal(
            stream_read(p->stream[STREAM_INPUTS], exit->data, (size_t)exit->size * exit->count), 0);
    fail_replay(g, p->follower->access(p->follower, exit, &g->e));
    if (g->shadow.held.kind) {
        g->at_hold(g);
        fail_replay(g, shadow_go_on(&g->shadow, &g->e));
    }
}

/* The events behind an access. The player would apply interrupts to its vCPU, too. */
static void replay_pass(struct guest *g)
{
    struct player *p = &g->player;
    const struct event *event;

    while (!g->failed) {
        assert_int_equal(player_next(p, &event, &g->e), 0);
        if (!event)
            return;
        assert_true(event->kind != EVENT_DMA_READ && event->kind != EVENT_DMA_WRITE);
        fail_replay(g, p->follower->event(p->follower, event, &g->e));
        player_pass(p);
    }
}

static int replay_try(struct guest *g, struct disk *disk)
{
    struct player *p = &g->player;
    struct err e;

    *g = (struct guest){.access = replay_access, .pass = replay_pass};
    assert_int_equal(guest_memory_create(&g->memory, MEMORY, &e), 0);
    p->recording = recording_open(path, &e);
    assert_non_null(p->recording);
    p->chunks = chunk_source_open(p->recording, &e);
    p->vm.memory = g->memory;
    p->cpu_count = 1;
    p->cpu = p->cpus;
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        p->stream[kind] = stream_open(p->recording, kind, &e);
    return shadow_open(&g->shadow, p, disk, NULL, &g->e);
}

static void replay_open(struct guest *g, struct disk *disk)
{
    if (replay_try(g, disk) < 0)
        fail_msg("%s", g->e.text);
}

static void replay_close(struct guest *g)
{
    struct recording *recording = g->player.recording;

    shadow_close(&g->shadow);
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++)
        stream_close(g->player.stream[kind]);
    chunk_source_close(g->player.chunks);
    recording_close(recording);
    guest_memory_destroy(&g->memory);
}

static void fill_image(void)
{
    uint64_t random = 42;

    for (size_t i = 0; i < sizeof image; i += 8) {
        const uint64_t r = next(&random);
        memcpy(image + i, &r, 8);
    }
}

static void assert_same_disk(struct disk *a, struct disk *b)
{
    static uint8_t first[DISK_BYTES], second[DISK_BYTES];

    assert_int_equal(disk_read(a, 0, first, sizeof first), 0);
    assert_int_equal(disk_read(b, 0, second, sizeof second), 0);
    assert_memory_equal(first, second, sizeof first);
}

static struct guest recorded, replayed;

/* What the devices are, with the clock of both at the same time. */
static void assert_same_devices(struct pc *a, struct pc *b)
{
    struct bytes first = {0}, second = {0};

    a->time.now_ns = b->time.now_ns;
    pc_save(a, &first);
    pc_save(b, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    bytes_free(&first);
    bytes_free(&second);
}

static void follows_the_recording(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct disk *disk = make_disk(), *shadow_disk = make_disk();

        record(&recorded, disk, seed, 4000);
        replay_open(&replayed, shadow_disk);
        run_guest(&replayed, seed, 4000);
        if (replayed.failed)
            fail_msg("seed %llu: %s", (unsigned long long)seed, replayed.e.text);
        assert_int_equal(stream_left(replayed.player.stream[STREAM_EVENTS]), 0);
        assert_same_devices(&recorded.pc, &replayed.shadow.pc);
        assert_same_disk(disk, shadow_disk);
        assert_memory_equal(recorded.memory.host, replayed.memory.host, MEMORY);
        assert_true(replayed.shadow.told_ns <= recorded.now &&
                    recorded.now - replayed.shadow.told_ns < 1000000000u);
        assert_true(replayed.player.stats.events > 1000);
        replay_close(&replayed);
        guest_memory_destroy(&recorded.memory);
        disk_close(disk);
        disk_close(shadow_disk);
    }
}

/* A recording that began with a disk that had been written to. */
static void begins_with_what_was_written(void **state)
{
    struct disk *disk = make_disk(), *shadow_disk = make_disk();
    static const uint8_t zero[8192];

    (void)state;
    assert_int_equal(disk_write(disk, 4096, zero, 4096), 0);
    assert_int_equal(disk_write(disk, DISK_BYTES - 700, image, 700), 0);
    record(&recorded, disk, 99, 200);
    replay_open(&replayed, shadow_disk);
    run_guest(&replayed, 99, 200);
    if (replayed.failed)
        fail_msg("%s", replayed.e.text);
    assert_same_disk(disk, shadow_disk);
    replay_close(&replayed);
    guest_memory_destroy(&recorded.memory);
    disk_close(disk);
    disk_close(shadow_disk);
}

/* ---- at a snapshot ---- */

#define SNAPSHOT_STEP 1500u
#define TAMPERED      300u

/* One whose `live` is as given; the rest of it does not matter here. */
static void add_snapshot(struct snapshot_adder *a, const struct guest *g, unsigned number,
                         const struct bytes *live)
{
    struct snapshot s = {.live = *live};
    struct bytes record = {0};

    snprintf(s.name, sizeof s.name, "%u", number);
    s.mark.at_sync = true;
    s.mark.ordinal = g->player.ordinal;
    s.mark.cpu_count = 1;
    s.mark.cpus[0].last_sync = g->player.cpu->last_sync;
    snapshot_encode(&record, &s);
    assert_int_equal(writer_put(a->writer, STREAM_SNAPSHOTS, record.data, record.len), 0);
    bytes_free(&record);
}

/* Add the state of the devices here to the recording, once as it is and then tampered with. */
static void add_snapshots(struct guest *g)
{
    struct snapshot_adder adder;
    struct bytes devices = {0}, access = {0}, live = {0};
    uint64_t random = 5;
    struct err e;

    if (snapshot_adder_open(&adder, path, &e) < 0)
        fail_msg("%s", e.text);
    struct disk_map *map = disk_map_create(g->disk, &e);
    shadow_save(&g->shadow, &devices);
    shadow_save_access(&g->shadow, &access);
    const struct live_state here = {.devices = &devices, .access = &access, .disk = map};
    assert_int_equal(live_state_take(&here, adder.chunks, &live, &e), 0);
    assert_true(live.len > devices.len + 50); /* the disk was written to */
    add_snapshot(&adder, g, 0, &live);
    for (unsigned i = 1; i <= TAMPERED; i++) {
        struct bytes bad = {0};
        bytes_put(&bad, live.data, i % 3 ? live.len : 1 + next(&random) % live.len);
        for (unsigned flips = 1 + i % 4; flips; flips--)
            bad.data[next(&random) % bad.len] ^= (uint8_t)(1u << next(&random) % 8);
        add_snapshot(&adder, g, i, &bad);
        bytes_free(&bad);
    }
    disk_map_destroy(map);
    bytes_free(&devices);
    bytes_free(&access);
    bytes_free(&live);
    if (snapshot_adder_finish(&adder, &e) < 0)
        fail_msg("%s", e.text);
}

/* The same place of the recording, in the file as it is now. */
static void reopen(struct player *p)
{
    struct err e;
    struct recording *old = p->recording;

    chunk_source_close(p->chunks);
    p->recording = recording_open(path, &e);
    assert_non_null(p->recording);
    p->chunks = chunk_source_open(p->recording, &e);
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++) {
        const uint64_t at = stream_tell(p->stream[kind]);
        stream_close(p->stream[kind]);
        p->stream[kind] = stream_open(p->recording, kind, &e);
        stream_seek(p->stream[kind], at);
    }
    if (p->has_next)
        p->codec = p->codec_before;
    p->has_next = false;
    recording_close(old);
}

/* Others take over from the devices that followed so far; of what the guest wrote to its disk they
 * have what is in the snapshot. */
static void change_devices(struct guest *g)
{
    struct snapshot_list list;
    struct err e;
    unsigned refused = 0;

    add_snapshots(g);
    shadow_close(&g->shadow);
    reopen(&g->player);
    assert_int_equal(snapshot_list_load(&list, g->player.recording, &e), 0);
    assert_int_equal(list.count, 1 + TAMPERED);
    for (unsigned i = TAMPERED; i; i--) {
        struct disk *disk = make_disk();
        const int rc = shadow_open(&g->shadow, &g->player, disk, &list.at[i], &e);
        assert_true(rc == 0 || e.status == STATUS_BAD_RECORDING);
        refused += rc < 0;
        shadow_close(&g->shadow);
        disk_close(disk);
    }
    assert_true(refused > TAMPERED / 3);
    disk_close(g->disk);
    g->disk = make_disk();
    if (shadow_open(&g->shadow, &g->player, g->disk, &list.at[0], &e) < 0)
        fail_msg("%s", e.text);
    snapshot_list_free(&list);
}

/* Behind an access, and before one is served. */
static void change_behind(struct guest *g, unsigned step)
{
    if (step == SNAPSHOT_STEP && !g->failed)
        change_devices(g);
}

static void change_before(struct guest *g, unsigned step)
{
    if (step == SNAPSHOT_STEP)
        g->shadow.hold = g->player.ordinal + 1;
}

static void goes_on_at_a_snapshot(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 18; seed++) {
        struct disk *disk = make_disk(), *shadow_disk = make_disk();

        record(&recorded, disk, seed, 3000);
        replay_open(&replayed, shadow_disk);
        replayed.disk = shadow_disk;
        replayed.at_step = seed % 2 ? change_behind : change_before;
        replayed.at_hold = change_devices;
        run_guest(&replayed, seed, 3000);
        if (replayed.failed)
            fail_msg("seed %llu: %s", (unsigned long long)seed, replayed.e.text);
        assert_int_equal(stream_left(replayed.player.stream[STREAM_EVENTS]), 0);
        assert_same_devices(&recorded.pc, &replayed.shadow.pc);
        assert_same_disk(disk, replayed.disk);
        replay_close(&replayed);
        guest_memory_destroy(&recorded.memory);
        disk_close(disk);
        disk_close(replayed.disk);
    }
}

/* What cannot be the recorded machine is refused before anything is played. */
static void devices_that_do_not_fit_are_refused(void **state)
{
    static const char *const found[] = {"does not know its devices", "writes beyond its disk"};
    struct disk *disk = make_disk();

    (void)state;
    assert_int_equal(disk_write(disk, DISK_BYTES - 700, image, 700), 0);
    record(&recorded, disk, 98, 20);
    disk_close(disk);
    for (unsigned small = 0; small < 2; small++) {
        disk = small ? make_disk_of(DISK_BYTES - DISK_CLUSTER) : NULL;
        assert_int_equal(replay_try(&replayed, disk), -1);
        assert_int_equal(replayed.e.status, STATUS_BAD_RECORDING);
        if (!strstr(replayed.e.text, found[small]))
            fail_msg("%s", replayed.e.text);
        replay_close(&replayed);
        disk_close(disk);
    }
    guest_memory_destroy(&recorded.memory);
}

static void another_disk_is_noticed(void **state)
{
    struct disk *disk = make_disk();

    (void)state;
    record(&recorded, disk, 5, 2000);
    disk_close(disk);
    image[sizeof image / 2] ^= 1;
    disk = make_disk();
    replay_open(&replayed, disk);
    run_guest(&replayed, 5, 2000);
    image[sizeof image / 2] ^= 1;
    assert_true(replayed.failed);
    if (!strstr(replayed.e.text, "is this the disk image, unchanged?"))
        fail_msg("%s", replayed.e.text);
    replay_close(&replayed);
    guest_memory_destroy(&recorded.memory);
    disk_close(disk);
}

/* Devices that are in another state than the recorded ones show it. */
static void other_devices_are_noticed(void **state)
{
    static const char *const found[] = {"port 0x92 reads otherwise", "console takes less input",
                                        "there is no interrupt with vector"};

    (void)state;
    struct disk *disk = make_disk();
    record(&recorded, disk, 6, 2000);
    disk_close(disk);
    for (unsigned what = 0; what < 3; what++) {
        disk = make_disk();
        replay_open(&replayed, disk);
        struct pc *pc = &replayed.shadow.pc;
        if (what == 0)
            pc->i8042.a20 = !pc->i8042.a20;
        else if (what == 1)
            pc->serial.received = 1;
        else
            pc->irqchip.pic[0].elcr = 0x01;
        run_guest(&replayed, 6, 2000);
        if (!replayed.failed || !strstr(replayed.e.text, found[what]))
            fail_msg("%u: %s", what, replayed.e.text);
        replay_close(&replayed);
        disk_close(disk);
    }
    guest_memory_destroy(&recorded.memory);
}

static void state_round_trip(void **state)
{
    struct disk *disk = make_disk();
    struct bytes first = {0}, second = {0};
    struct pc *other = calloc(1, sizeof *other);
    struct err e;

    (void)state;
    record(&recorded, disk, 7, 3000);
    assert_int_equal(pc_init(other, &recorded.pc.config, &e), 0);
    recorded.pc.time.now_ns = recorded.now;
    pc_save(&recorded.pc, &first);
    struct cursor in = cursor_of(first.data, first.len);
    assert_int_equal(pc_restore(other, &in), 0);
    pc_save(other, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    assert_int_equal(other->time.epoch_ns, EPOCH_NS);
    for (size_t len = 0; len < first.len; len++) { /* cut off anywhere */
        in = cursor_of(first.data, len);
        assert_int_equal(pc_init(other, &recorded.pc.config, &e), 0);
        assert_int_equal(pc_restore(other, &in), -1);
    }
    bytes_free(&first);
    bytes_free(&second);
    free(other);
    guest_memory_destroy(&recorded.memory);
    disk_close(disk);
}

/* States that nobody saved: whatever comes of them, the devices can be used. */
static void garbage_does_no_harm(void **state)
{
    struct disk *disk = make_disk();
    struct bytes good = {0}, again = {0};
    struct pc *pc = calloc(1, sizeof *pc);
    uint64_t random = 77;
    unsigned refused = 0;
    struct err e;

    (void)state;
    record(&recorded, disk, 8, 1000);
    recorded_dma_init(&recorded.dma, &recorded.memory, NULL);
    pc_save(&recorded.pc, &good);
    for (unsigned round = 0; round < 3000; round++) {
        uint8_t *bad = malloc(good.len); /* of this size: the sanitizer sees any overrun */
        memcpy(bad, good.data, good.len);
        for (unsigned i = 0; i < 1 + round % 8; i++)
            bad[next(&random) % good.len] = (uint8_t)next(&random);
        struct cursor in = cursor_of(bad, good.len);
        assert_int_equal(pc_init(pc, &recorded.pc.config, &e), 0);
        refused += pc_restore(pc, &in) < 0;
        for (unsigned i = 0; i < 40; i++) {
            uint64_t data = next(&random);
            struct vcpu_exit exit = {.size = 1, .count = 1, .data = (uint8_t *)&data};
            const uint64_t r = next(&random), now = pc->time.now_ns + r % 1000000000;
            exit.kind = i % 4 ? EXIT_PIO_OUT + (r >> 32 & 1) - 1 : EXIT_MMIO_WRITE;
            exit.at = i % 4 ? (r >> 33) % 0x700 : BLK + (r >> 33) % (2 * BAR_BYTES);
            pc_serve(pc, &exit, now);
            if (pc_deadline(pc, now) <= now)
                pc_poll(pc, now);
            if (irqchip_pending(&pc->irqchip))
                irqchip_acknowledge(&pc->irqchip);
        }
        bytes_clear(&again);
        pc_save(pc, &again);
        free(bad);
    }
    assert_true(refused > 100);
    bytes_free(&good);
    bytes_free(&again);
    free(pc);
    guest_memory_destroy(&recorded.memory);
    disk_close(disk);
}

/* Their APICs, and whose turn it is, are not followed yet. */
static void several_cpus_are_refused(void **state)
{
    (void)state;
    record(&recorded, NULL, 5, 10);
    replay_open(&replayed, NULL);
    shadow_close(&replayed.shadow);
    replayed.player.cpu_count = 2;
    assert_int_equal(shadow_open(&replayed.shadow, &replayed.player, NULL, NULL, &replayed.e), -1);
    assert_non_null(strstr(replayed.e.text, "several CPUs"));
    assert_null(replayed.player.follower);
    replay_close(&replayed);
    guest_memory_destroy(&recorded.memory);
}

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);

    fill_image();
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_recording),
        cmocka_unit_test(begins_with_what_was_written),
        cmocka_unit_test(goes_on_at_a_snapshot),
        cmocka_unit_test(another_disk_is_noticed),
        cmocka_unit_test(other_devices_are_noticed),
        cmocka_unit_test(devices_that_do_not_fit_are_refused),
        cmocka_unit_test(several_cpus_are_refused),
        cmocka_unit_test(state_round_trip),
        cmocka_unit_test(garbage_does_no_harm),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
