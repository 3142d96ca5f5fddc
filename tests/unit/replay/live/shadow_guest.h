#ifndef TESTS_UNIT_REPLAY_LIVE_SHADOW_GUEST_H
#define TESTS_UNIT_REPLAY_LIVE_SHADOW_GUEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "recorder/live_state.h"
#include "recorder/recorder.h"
#include "replay/live/shadow.h"
#include "replay/player_inside.h"
#include "vmm/machine/pc_access.h"

/*
 * A guest for test_shadow.c, without a vCPU: it uses a set of devices at random (ports, a disk, a
 * source of entropy), and run_guest() makes the same accesses for the same seed. record() has
 * devices of a machine answer, and writes a recording of it to `path`.
 */

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
    struct lane {
        struct block_link link;
        struct guest *guest;
        struct block_job *oldest; /* of those that wait */
        unsigned completed_late;
    } lane;
    struct vcpu vcpu;
    struct kvm_regs regs;
    uint64_t now, random_time;
    bool window;
    /* When it is replayed. */
    struct player player;
    struct shadow shadow;
    struct err e;
    bool failed;
    struct disk_set disks;
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

/* The set of this disk alone, or of none. */
static const struct disk_set *alone(struct guest *g, struct disk *disk)
{
    g->disks = (struct disk_set){
        .whole = disk, .disk = {disk}, .serial = {"ditto"}, .count = disk != NULL};
    return &g->disks;
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
    mmio_out(g, r->bar + COMMON_ACCEPTED_SELECT, 4, 0);
    mmio_out(g, r->bar + COMMON_ACCEPTED, 4, next(&g->random) % 2 ? VIRTIO_F_EVENT_IDX : 0);
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

/* Jobs of the disk are done at random: at once, or some time later. */
static void lane_submit(struct block_link *link, struct block_job *job)
{
    struct lane *lane = (struct lane *)link;
    struct block_job **last = &lane->oldest;

    if (!lane->oldest && next(&lane->guest->random_time) % 2) {
        job->run(job, true);
        atomic_store(&job->done, true);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = job;
    job->next = NULL;
}

static void lane_work(struct lane *lane)
{
    struct block_job *job = lane->oldest;

    lane->oldest = job->next;
    job->run(job, true);
    atomic_store(&job->done, true);
}

static void lane_settle(struct block_link *link)
{
    struct lane *lane = (struct lane *)link;

    while (lane->oldest)
        lane_work(lane);
}

static unsigned lane_completes(struct block_link *link, unsigned done)
{
    const struct lane *lane = (struct lane *)link;
    const unsigned count = done > 1 && next(&lane->guest->random_time) % 2 ? 1 : done;

    if (count)
        recorder_disk_done(lane->guest->recorder, 0, count);
    return count;
}

/* At some place between two accesses. */
static void lane_pass(struct guest *g)
{
    struct virtio_blk *blk = &g->pc.disks[0].blk;

    while (g->lane.oldest && next(&g->random_time) % 4 == 0)
        lane_work(&g->lane);
    if (!virtio_blk_has_done(blk) || next(&g->random_time) % 4)
        return;
    virtio_blk_complete(blk);
    g->lane.completed_late++;
}

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
    const struct bus_access access = access_of(0, exit);
    if (pc_serve(&g->pc, &access, g->now))
        recorder_time(g->recorder, g->now);
    if (exit->kind == EXIT_PIO_IN || exit->kind == EXIT_MMIO_READ)
        recorder_input(g->recorder, exit->data, (size_t)exit->size * exit->count);
}

/* As the run loop of a machine: time passes, keys are pressed, interrupts are taken. */
static void record_pass(struct guest *g)
{
    const uint64_t r = next(&g->random_time);

    lane_pass(g);
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
    g->recorder = recorder_create(path, true, "{\"machine\": {\"memory\": 33554432}}", &e);
    assert_non_null(g->recorder);
    recorded_dma_init(&g->dma, &g->memory, g->recorder);
    g->lane = (struct lane){
        .link = {.submit = lane_submit, .completes = lane_completes, .settle = lane_settle},
        .guest = g};
    const struct pc_config config = {
        .dma = &g->dma.dma,
        .disks = alone(g, disk),
        .disk_links = {&g->lane.link},
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
    lane_settle(&g->lane.link);
    if (recorder_finish(g->recorder, END_STOPPED, NULL, &e) < 0)
        fail_msg("%s", e.text);
}

static void record_close(struct guest *g)
{
    pc_close(&g->pc);
    guest_memory_destroy(&g->memory);
}

#endif
