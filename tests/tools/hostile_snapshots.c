/*
 * Replays from snapshots that were tampered with, with devices that begin there and without:
 * whatever they say, the replay is refused, diverges or goes on, and dittovm does not crash, hang
 * or touch anything else. Writes TAP.
 *
 * usage: hostile_snapshots REC ROUNDS    (REC has a snapshot; writes hostile.ditto)
 *        hostile_snapshots REC 0 N       (one more at sync point N, one at the next: within one
 *                                        instruction, where nobody ever stands)
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/file.h"
#include "recording/places/snapshot_list.h"
#include "recording/writer.h"
#include "replay/live/shadow.h"
#include "replay/player.h"
#include "replay/timeline.h"
#include "tests/tools/tool_host.h"

#define COPY "hostile.ditto"
/* How far each goes, and for how long at most. */
#define SYNCS_MAX 50u
#define US_MAX    700000

static struct player player;
static struct shadow devices;
static struct timeline timeline;
static struct snapshot snapshot;  /* the recording's first */
static struct bytes file, record; /* the whole recording; its first snapshot, without the length */
static size_t name_bytes;         /* of the record, which stay */

/* Refused as a snapshot, which few bits of it can bring about, or as a state. */
enum outcome { REFUSED, NO_STATE, DIVERGED, STOPPED, PLAYED, FAILED, OUTCOMES };

static _Noreturn void die(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static void on_alarm(int signal)
{
    (void)signal;
    if (timeline.player)
        timeline_interrupt(&timeline);
    else
        player_interrupt(&player);
}

static void set_alarm(long us)
{
    const struct itimerval timer = {.it_value.tv_usec = us, .it_interval.tv_usec = us};

    setitimer(ITIMER_REAL, &timer, NULL);
}

static void encode(const struct snapshot *s)
{
    struct bytes with_length = {0};

    snapshot_encode(&with_length, s);
    struct cursor c = cursor_of(with_length.data, with_length.len);
    const uint64_t len = cursor_varint(&c);
    bytes_clear(&record);
    bytes_put(&record, c.p, len);
    bytes_free(&with_length);
}

/* What is sound and yet of no such machine: a CPU more, or what no CPU can be in. */
static void make_impossible(int round)
{
    struct snapshot *s = malloc(sizeof *s);

    if (!s)
        die("out of memory");
    *s = snapshot;
    if (round == 0) {
        s->mark.cpu_count = 2;
        s->mark.cpus[1] = s->mark.cpus[0];
    } else {
        s->mark.cpus[0].state.sregs.cr4 |= 1ull << 63;
    }
    encode(s);
    free(s);
}

static void load(const char *path)
{
    struct snapshot_list list;
    struct err e = {0};
    struct recording *r = recording_open(path, &e);

    if (!r || snapshot_list_load(&list, r, &e) < 0)
        die(e.text);
    if (!list.count || snapshot_read(r, list.at, UINT32_MAX, &snapshot, &e) < 0)
        die("it has no snapshot");
    name_bytes = 1 + strlen(snapshot.name);
    encode(&snapshot);
    snapshot_list_free(&list);
    recording_close(r);
    if (file_read(path, 1u << 30, &file.data, &file.len, &e) < 0)
        die(e.text);
}

/* The recording with these records of snapshots, too. */
static void write_with(const struct bytes *records)
{
    struct err e = {0};
    struct end_record end;
    FILE *f = fopen(COPY, "wb");

    if (!f || fwrite(file.data, file.len, 1, f) != 1 || fclose(f) != 0)
        die("cannot write " COPY);
    struct recording_writer *w = writer_reopen(COPY, &end, &e);
    if (!w)
        die(e.text);
    writer_put(w, STREAM_SNAPSHOTS, records->data, records->len);
    if (writer_finish(w, end.reason_code, end.reason, &e) < 0)
        die(e.text);
}

/* The recording with one more snapshot, in which some bits are others. */
static void write_copy(unsigned flips)
{
    struct bytes out = {0};

    bytes_put_varint(&out, record.len);
    const size_t body = out.len;
    bytes_put(&out, record.data, record.len);
    out.data[body + 1] = 'X'; /* another name */
    for (; flips; flips--)
        out.data[body + name_bytes + (size_t)rand() % (record.len - name_bytes)] ^=
            (uint8_t)(1u << rand() % 8);
    write_with(&out);
    bytes_free(&out);
}

/* ... and with two that say that they are of this sync point and of the next one. */
static void write_two(uint64_t ordinal)
{
    struct bytes out = {0};

    for (unsigned i = 0; i < 2; i++) {
        snapshot.mark.ordinal = ordinal + i;
        snapshot.mark.codec.ordinal = 0;
        snprintf(snapshot.name, sizeof snapshot.name, "forged%u", i);
        snapshot_encode(&out, &snapshot);
    }
    write_with(&out);
    bytes_free(&out);
}

/* Whether devices can follow, from what the snapshot says of them on. */
static bool follow(const struct snapshot_entry *from, struct err *e)
{
    return from->live && shadow_open(&devices, &player, NULL, 0, from, e) == 0 &&
           shadow_go_on(&devices, e) == 0;
}

static enum outcome play(struct recording *r, bool with_devices)
{
    struct snapshot_list list;
    struct err e = {0};

    if (snapshot_list_load(&list, r, &e) < 0)
        return REFUSED;
    if (player_open(&player, r, NULL, &e) < 0)
        die(e.text);
    enum outcome outcome = NO_STATE;
    const struct snapshot_entry *last = &list.at[list.count - 1];
    if (player_enter(&player, last, &e) == 0 && (!with_devices || follow(last, &e))) {
        set_alarm(US_MAX);
        if (player_run(&player, player.ordinal + SYNCS_MAX, &e) < 0)
            outcome = FAILED;
        else if (player.status == PLAYER_DIVERGED)
            outcome = DIVERGED;
        else
            outcome = player.status == PLAYER_STOPPED ? STOPPED : PLAYED;
        set_alarm(0);
    }
    shadow_close(&devices);
    player_close(&player);
    snapshot_list_free(&list);
    return outcome;
}

/* Going to and fro in time there must not crash, whatever it comes to. */
static void travel(struct recording *r)
{
    struct snapshot_list list;
    struct err e = {0};

    if (snapshot_list_load(&list, r, &e) < 0)
        return;
    const uint64_t ordinal = list.at[list.count - 1].ordinal;
    snapshot_list_free(&list);
    if (player_open(&player, r, NULL, &e) < 0 ||
        timeline_open(&timeline, &player, 16u << 20, &e) < 0)
        die(e.text);
    set_alarm(US_MAX);
    (void)timeline_seek(&timeline, ordinal, &e);
    (void)timeline_step(&timeline, &e);
    (void)timeline_continue(&timeline, &e);
    (void)timeline_reverse_step(&timeline, &e);
    set_alarm(0);
    timeline_close(&timeline);
    player_close(&player);
}

/* Go to both, and to before them; then step over the instruction, and on. */
static void step_over_two(uint64_t ordinal)
{
    struct err e = {0};

    write_two(ordinal);
    struct recording *r = recording_open(COPY, &e);
    if (!r || player_open(&player, r, NULL, &e) < 0 ||
        timeline_open(&timeline, &player, 16u << 20, &e) < 0)
        die(e.text);
    for (unsigned i = 0; i < 2; i++)
        (void)timeline_seek(&timeline, ordinal + i, &e);
    bool good = timeline_seek(&timeline, ordinal - 1, &e) == TIMELINE_THERE;
    while (good && player.ordinal <= ordinal)
        good = timeline_step(&timeline, &e) == TIMELINE_THERE;
    good &= player.ordinal > ordinal + 1;
    /* What is restored from now on may be what was forged. */
    (void)timeline_continue(&timeline, &e);
    (void)timeline_seek(&timeline, ordinal - 1, &e);
    (void)timeline_continue(&timeline, &e);
    timeline_close(&timeline);
    player_close(&player);
    recording_close(r);
    printf("%sok 1 forged snapshots within an instruction are passed\n1..1\n", good ? "" : "not ");
}

int main(int argc, char **argv)
{
    unsigned count[OUTCOMES] = {0};
    struct err e = {0};
    int status;

    if (argc != 3 && argc != 4)
        return 2;
    const struct host_needs needs = {.guest_memory = 64u << 20};
    if (tool_ran_in_host("hostile_snapshots", argv, &needs, &status))
        return status;
    signal(SIGALRM, on_alarm);
    load(argv[1]);
    if (argc == 4) {
        step_over_two(strtoull(argv[3], NULL, 10));
        unlink(COPY);
        return 0;
    }
    srand(1);
    for (int round = 0; round < atoi(argv[2]); round++) {
        const bool impossible = round < 2;
        if (impossible)
            make_impossible(round);
        else if (round == 2)
            encode(&snapshot);
        write_copy(impossible ? 0 : 1 + (unsigned)rand() % 4);
        struct recording *r = recording_open(COPY, &e);
        if (!r)
            die(e.text);
        if (impossible || round % 3 == 2)
            travel(r);
        else
            count[play(r, round % 2)]++;
        recording_close(r);
    }
    unlink(COPY);
    printf("# refused %u, no such state %u, diverged %u, stopped %u, played %u, failed %u\n",
           count[REFUSED], count[NO_STATE], count[DIVERGED], count[STOPPED], count[PLAYED],
           count[FAILED]);
    printf("%sok 1 tampered snapshots are refused, or show\n1..1\n",
           (count[REFUSED] || count[NO_STATE]) && count[DIVERGED] ? "" : "not ");
    return 0;
}
