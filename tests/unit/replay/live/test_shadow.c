/*
 * replay/live/shadow.c: devices that follow a recording are those that were recorded.
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

#include "base/hidden_ports.h"
#include "recording/streams.h"
#include "replay/snapshot_adder.h"
#include "tests/unit/random.h"
#include "tests/unit/replay/live/shadow_guest.h"

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
        if (!g->failed)
            fail_replay(g, p->follower->behind(p->follower, &g->e));
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
    return shadow_open(&g->shadow, p, alone(g, disk), 0, NULL, &g->e);
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
        assert_true(recorded.lane.completed_late > 100);
        replay_close(&replayed);
        record_close(&recorded);
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
    record_close(&recorded);
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
        const int rc = shadow_open(&g->shadow, &g->player, alone(g, disk), 0, &list.at[i], &e);
        assert_true(rc == 0 || e.status == STATUS_BAD_RECORDING);
        refused += rc < 0;
        shadow_close(&g->shadow);
        disk_close(disk);
    }
    assert_true(refused > TAMPERED / 3);
    disk_close(g->disk);
    g->disk = make_disk();
    if (shadow_open(&g->shadow, &g->player, alone(g, g->disk), 0, &list.at[0], &e) < 0)
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
        record_close(&recorded);
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
    record_close(&recorded);
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
    record_close(&recorded);
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
    record_close(&recorded);
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
        pc_close(other);
        assert_int_equal(pc_init(other, &recorded.pc.config, &e), 0);
        assert_int_equal(pc_restore(other, &in), -1);
    }
    pc_close(other);
    bytes_free(&first);
    bytes_free(&second);
    free(other);
    record_close(&recorded);
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
    for (unsigned round = 0; round < rounds(3000); round++) {
        uint8_t *bad = malloc(good.len); /* of this size: the sanitizer sees any overrun */
        memcpy(bad, good.data, good.len);
        for (unsigned i = 0; i < 1 + round % 8; i++)
            bad[next(&random) % good.len] = (uint8_t)next(&random);
        struct cursor in = cursor_of(bad, good.len);
        assert_int_equal(pc_init(pc, &recorded.pc.config, &e), 0);
        refused += pc_restore(pc, &in) < 0;
        for (unsigned i = 0; i < 40; i++) {
            uint64_t data = next(&random);
            struct bus_access access = {.size = 1, .count = 1, .data = (uint8_t *)&data};
            const uint64_t r = next(&random), now = pc->time.now_ns + r % 1000000000;
            access.mmio = i % 4 == 0;
            access.write = access.mmio || r >> 32 & 1;
            access.at = i % 4 ? (r >> 33) % 0x700 : BLK + (r >> 33) % (2 * BAR_BYTES);
            pc_serve(pc, &access, now);
            if (pc_deadline(pc, now) <= now)
                pc_poll(pc, now);
            if (irqchip_pending(&pc->irqchip))
                irqchip_acknowledge(&pc->irqchip);
        }
        bytes_clear(&again);
        lane_settle(&recorded.lane.link);
        pc_save(pc, &again);
        pc_close(pc);
        free(bad);
    }
    assert_true(refused > 100);
    bytes_free(&good);
    bytes_free(&again);
    free(pc);
    record_close(&recorded);
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
    assert_int_equal(shadow_open(&replayed.shadow, &replayed.player, NULL, 0, NULL, &replayed.e),
                     -1);
    assert_non_null(strstr(replayed.e.text, "several CPUs"));
    assert_null(replayed.player.follower);
    replay_close(&replayed);
    record_close(&recorded);
}

static int replay_kexec_port(uint64_t rip)
{
    struct kvm_regs regs = {.rip = rip};
    uint8_t al = 0;
    const struct vcpu_exit exit = {
        .kind = EXIT_PIO_OUT, .at = KEXEC_PORT, .size = 1, .count = 1, .data = &al};

    replayed.player.cpu->vcpu.regs = &regs;
    replayed.player.ordinal++;
    assert_int_equal(replayed.player.follower->access(replayed.player.follower, &exit, &replayed.e),
                     0);
    return shadow_check_kernel(&replayed.shadow, &replayed.e);
}

/* What the recorder changed in the second kernel is not in the recording. */
static void nobody_goes_live_behind_a_kexec(void **state)
{
    (void)state;
    record(&recorded, NULL, 5, 10);
    replay_open(&replayed, NULL);
    assert_int_equal(replay_kexec_port(0x1000), 0); /* a kernel of which no hook is known */
    replayed.shadow.kexec_hook = 0x1000;
    assert_int_equal(replay_kexec_port(0x2000), 0); /* the guest's own */
    assert_int_equal(replay_kexec_port(0x1000), -1);
    assert_non_null(strstr(replayed.e.text, "at sync point 3 or later"));
    assert_int_equal(replay_kexec_port(0x2000), -1);
    assert_non_null(strstr(replayed.e.text, "at sync point 3 or later"));
    replay_close(&replayed);
    record_close(&recorded);
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
        cmocka_unit_test(nobody_goes_live_behind_a_kexec),
        cmocka_unit_test(state_round_trip),
        cmocka_unit_test(garbage_does_no_harm),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
