/*
 * Going live from the beginning of a recording and from many places in it, at random: each time the
 * machine must put out a line, end as the recorded one did, and its own recording must verify.
 * Where the way there begins at a snapshot, the machine must be what it is after the whole way.
 * Writes TAP.
 *
 * usage: go_live REC LINE ROUNDS SEED
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/description.h"
#include "host/host.h"
#include "mmu/digest.h"
#include "recorder/recorder.h"
#include "recording/places/snapshot_list.h"
#include "replay/live/live.h"
#include "replay/player.h"

#define OUTPUT_MAX (1u << 20)

static struct machine machine;
static struct player player;

static void fail(const char *what)
{
    fprintf(stderr, "Bail out! %s\n", what);
    exit(1);
}

/* Live to the end; what the machine puts out, on the way there and then, goes to stdout. */
static enum end_reason run_live(const struct live_request *r, struct err *e)
{
    const struct machine_config how = {.grace_ns = 50000000, .slow = 1};
    const struct run_options described = {.from = r->from};
    struct live l;
    struct recorder *recorder = NULL;
    enum end_reason reason = END_FAILED;

    if (live_open(&l, r, e) < 0)
        return END_FAILED;
    struct console *console = console_open(-1, STDOUT_FILENO, true, e);
    if (live_play(&l, e) == 0 && live_machine(&l, &how, &machine, console, e) == 0) {
        char *text = description_of_live(&described, l.meta, l.point, &machine);
        recorder = recorder_create(r->output, true, text, e);
        free(text);
        if (recorder && live_record(&l, &machine, recorder, e) == 0 &&
            machine_run(&machine, &reason, e) == 0 &&
            recorder_end(recorder, &machine.vm, reason, true, e) == 0 &&
            recorder_finish(recorder, reason, NULL, e) < 0)
            reason = END_FAILED;
        machine_destroy(&machine);
    }
    console_close(console);
    live_close(&l);
    return reason;
}

/* What a machine is where it goes live. */
struct arrival {
    uint64_t memory, cpu, disk;
    struct bytes devices;
};

static uint64_t disk_digest(struct disk *disk)
{
    uint8_t page[DISK_CLUSTER];
    uint64_t digest = 0;

    for (uint64_t at = 0; disk && disk_overlay_changed(disk, &at); at += DISK_CLUSTER) {
        const uint64_t left = disk->size - at;
        const size_t len = left < sizeof page ? (size_t)left : sizeof page;
        if (disk_read(disk, at, page, len) < 0)
            fail("its disk cannot be read");
        digest = output_fold(digest, at, page, len);
    }
    return digest;
}

static uint64_t cpu_digest(const struct vcpu_state *state)
{
    struct bytes b = {0};

    vcpu_state_encode(&b, state);
    const uint64_t digest = output_fold(0, 0, b.data, b.len);
    bytes_free(&b);
    return digest;
}

static int arrive(const struct live_request *r, struct arrival *a, bool *from_snapshot,
                  struct err *e)
{
    struct live l;

    *a = (struct arrival){0};
    if (live_open(&l, r, e) < 0)
        return -1;
    *from_snapshot = l.begin.live;
    int rc = live_play(&l, e);
    if (rc == 0) {
        a->memory = memory_digest(&l.state.memory, NULL);
        a->cpu = cpu_digest(&l.state.cpu);
        a->disk = disk_digest(l.disks.whole);
        bytes_put(&a->devices, l.state.devices.data, l.state.devices.len);
    }
    live_close(&l);
    return rc;
}

/* A recorder's snapshot has the device time of that moment, which may be a little after what the
 * guest had been told: the u64 behind the version is not compared. */
static bool same_devices(const struct bytes *a, const struct bytes *b)
{
    return a->len == b->len && a->len > 9 && a->data[0] == b->data[0] &&
           !memcmp(a->data + 9, b->data + 9, a->len - 9);
}

/* Whether it makes no difference where the way there begins. */
static bool arrives(const struct live_request *r, bool *from_snapshot, struct err *e)
{
    struct live_request whole = *r;
    struct arrival a, b;
    bool no_snapshot;

    whole.check_disk = true;
    if (arrive(r, &a, from_snapshot, e) < 0)
        return false;
    if (arrive(&whole, &b, &no_snapshot, e) < 0) {
        bytes_free(&a.devices);
        return false;
    }
    const char *differs = a.memory != b.memory                    ? "memory"
                          : a.cpu != b.cpu                        ? "the CPU"
                          : a.disk != b.disk                      ? "the disk"
                          : !same_devices(&a.devices, &b.devices) ? "a device"
                                                                  : NULL;
    bytes_free(&a.devices);
    bytes_free(&b.devices);
    return !differs || err_set(e, STATUS_ERROR, "%s differs", differs) == 0;
}

static bool verifies(const char *path, struct err *e)
{
    struct recording *recording = recording_open(path, e);
    bool good = false;

    if (!recording)
        return false;
    if (player_open(&player, recording, NULL, e) == 0) {
        good = player_run(&player, UINT64_MAX, e) == 0 && player.status == PLAYER_ENDED;
        player_close(&player);
    }
    recording_close(recording);
    return good;
}

/* Whether a signal counts that comes before anything is played. */
static bool is_stopped_early(const struct live_request *r, struct err *e)
{
    struct live l;

    if (live_open(&l, r, e) < 0)
        return false;
    live_interrupt(&l);
    const int rc = live_play(&l, e);
    live_close(&l);
    return rc < 0 && strstr(e->text, "interrupted before sync point");
}

static bool has_line(const char *path, const char *line)
{
    uint8_t *data;
    size_t len;
    struct err e;

    if (file_read(path, OUTPUT_MAX, &data, &len, &e) < 0)
        return false;
    const bool found = memmem(data, len, line, strlen(line)) != NULL;
    free(data);
    return found;
}

int main(int argc, char **argv)
{
    static char self[4096], again[] = "go-live.ditto", output[] = "go-live.out";
    struct live_request r = {.output = again, .overwrite = true};
    struct err e = {0};
    uint64_t syncs;
    int status, bad = 0;
    unsigned snapshots = 0; /* that the way there began at */

    if (argc != 5 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 2;
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    struct host_needs needs = {
        .guest_memory = 256u << 20, .write_paths = {again}, .write_path_count = 1};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fprintf(stderr, "go_live: %s\n", e.text);
        return status;
    }
    snprintf(r.from.path, sizeof r.from.path, "%s", argv[1]);
    struct recording *recording = recording_open(argv[1], &e);
    if (!recording || !recording_end(recording) || recording_last_sync(recording, &syncs, &e) < 0)
        fail(e.text[0] ? e.text : "it has no end");
    const enum end_reason wanted = (enum end_reason)recording_end(recording)->reason_code;
    recording_close(recording);
    srand((unsigned)atoi(argv[4]));
    const int tap = dup(STDOUT_FILENO), rounds = atoi(argv[3]);
    dprintf(tap, "1..%d\n", rounds + 1);
    for (int i = 1; i <= rounds; i++) {
        const int fd = open(output, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        dup2(fd, STDOUT_FILENO);
        close(fd);
        e = (struct err){0};
        const uint64_t point = i == 1 ? 0 : (uint64_t)rand() % syncs;
        snprintf(r.from.name, sizeof r.from.name, "%llu", (unsigned long long)point);
        bool from_snapshot = false;
        const enum end_reason reason = run_live(&r, &e);
        const char *const what = reason != wanted                   ? end_reason_text(reason)
                                 : !verifies(again, &e)             ? "its recording"
                                 : !arrives(&r, &from_snapshot, &e) ? "the way there"
                                 : !from_snapshot && !has_line(output, argv[2]) ? "the line"
                                                                                : NULL;
        const bool good = !what;
        snapshots += from_snapshot;
        dprintf(tap, "%sok %d from sync point %llu%s%s%s%s\n", good ? "" : "not ", i,
                (unsigned long long)point, good ? "" : " # ", good ? "" : what, good ? "" : ": ",
                good ? "" : e.text);
        bad += !good;
    }
    snprintf(r.from.name, sizeof r.from.name, "%llu", (unsigned long long)syncs - 1);
    const bool stopped = is_stopped_early(&r, &e);
    dprintf(tap, "%sok %d stopped before it begins\n", stopped ? "" : "not ", rounds + 1);
    bad += !stopped;
    dprintf(tap, "# %u began at a snapshot\n", snapshots);
    unlink(again);
    unlink(output);
    return bad ? 1 : 0;
}
