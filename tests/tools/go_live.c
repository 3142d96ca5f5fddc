/*
 * Going live from the beginning of a recording and from many places in it, at random: each time the
 * machine must put out a line, end as the recorded one did, and its own recording must verify.
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
#include "replay/player.h"
#include "replay/snapshots.h"
#include "vmm/command.h"
#include "vmm/live.h"

#define OUTPUT_MAX (1u << 20)

static struct machine machine;
static struct player player;

static void fail(const char *what)
{
    fprintf(stderr, "Bail out! %s\n", what);
    exit(1);
}

/* Live to the end; what the machine puts out, on the way there and then, goes to stdout. */
static enum end_reason run_live(const struct run_options *o, struct err *e)
{
    struct live l;
    struct recorder *recorder = NULL;
    enum end_reason reason = END_FAILED;

    if (live_open(&l, o, e) < 0)
        return END_FAILED;
    struct console *console = console_open(-1, STDOUT_FILENO, e);
    if (live_play(&l, e) == 0 && live_machine(&l, &machine, console, e) == 0) {
        recorder = live_record(&l, &machine, e);
        if (recorder && machine_run(&machine, &reason, e) == 0 &&
            recorder_end(recorder, &machine.vcpu, &machine.vm.memory, reason, true, e) == 0 &&
            recorder_finish(recorder, reason, e) < 0)
            reason = END_FAILED;
        machine_destroy(&machine);
    }
    console_close(console);
    live_close(&l);
    return reason;
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
    struct run_options o = {.force = true, .record = true, .grace_ms = 50};
    struct err e = {0};
    uint64_t syncs;
    int status, bad = 0;

    if (argc != 5 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 2;
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    struct host_needs needs = {
        .guest_memory = 64u << 20, .write_paths = {again}, .write_path_count = 1};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fprintf(stderr, "go_live: %s\n", e.text);
        return status;
    }
    snprintf(o.from.path, sizeof o.from.path, "%s", argv[1]);
    snprintf(o.recording, sizeof o.recording, "%s", again);
    struct recording *recording = recording_open(argv[1], &e);
    if (!recording || !recording_end(recording) || recording_last_sync(recording, &syncs, &e) < 0)
        fail(e.text[0] ? e.text : "it has no end");
    const enum end_reason wanted = (enum end_reason)recording_end(recording)->reason_code;
    recording_close(recording);
    srand((unsigned)atoi(argv[4]));
    const int tap = dup(STDOUT_FILENO), rounds = atoi(argv[3]);
    dprintf(tap, "1..%d\n", rounds);
    for (int i = 1; i <= rounds; i++) {
        const int fd = open(output, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        dup2(fd, STDOUT_FILENO);
        close(fd);
        e = (struct err){0};
        const uint64_t point = i == 1 ? 0 : (uint64_t)rand() % syncs;
        snprintf(o.from.name, sizeof o.from.name, "%llu", (unsigned long long)point);
        const enum end_reason reason = run_live(&o, &e);
        const bool shown = has_line(output, argv[2]);
        const bool good = reason == wanted && shown && verifies(again, &e);
        dprintf(tap, "%sok %d from sync point %llu%s%s%s%s\n", good ? "" : "not ", i,
                (unsigned long long)point,
                good ? "" : " # ended: ", good ? "" : end_reason_text(reason),
                good || shown ? "" : ", without the line; ", good ? "" : e.text);
        bad += !good;
    }
    unlink(again);
    unlink(output);
    return bad ? 1 : 0;
}
