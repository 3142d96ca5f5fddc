/*
 * What time travel in a recording costs: seeks to random sync points, reverse steps there, the
 * pauses for checkpoints, and playing with checkpoints against playing without. Medians, as a table
 * in Markdown.
 *
 * usage: travel_bench REC [PLACES [SEED]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/now.h"
#include "cli/command.h"
#include "replay/timeline.h"

#define PLACES  20
#define PAIRS   3
#define BACK    3 /* reverse steps at a place, one behind the other */
#define BUDGET  (256ull << 20)
#define PAGES_1 655u /* 1 % of 256 MiB */
#define VALUES  100000u

static const char *path;

/* Values in ms, to be sorted. */
struct values {
    size_t count;
    double ms[VALUES];
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "travel_bench: %s\n", what);
    exit(1);
}

static void add(struct values *v, uint64_t ns)
{
    if (v->count < VALUES)
        v->ms[v->count++] = (double)ns / 1e6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void line(const char *what, struct values *v)
{
    if (!v->count) {
        printf("| %s | 0 | | | |\n", what);
        return;
    }
    qsort(v->ms, v->count, sizeof *v->ms, by_value);
    printf("| %s | %zu | %.1f | %.1f | %.1f |\n", what, v->count, v->ms[(v->count - 1) / 2],
           v->ms[(v->count * 9 + 9) / 10 - 1], v->ms[v->count - 1]);
}

static struct recording *recording;
static struct player player;
static struct timeline timeline;

static void open_player(void)
{
    struct err e;

    recording = recording_open(path, &e);
    if (!recording || player_open(&player, recording, NULL, &e) < 0)
        fail(e.text);
}

static void close_player(void)
{
    player_close(&player);
    recording_close(recording);
}

static uint64_t play(void)
{
    struct err e;

    open_player();
    const uint64_t began = host_now_ns();
    if (player_run(&player, UINT64_MAX, &e) < 0)
        fail(e.text);
    if (player.status != PLAYER_ENDED)
        fail("the recording does not play to its end");
    const uint64_t ns = host_now_ns() - began;
    close_player();
    return ns;
}

/* To the end, and leaves the timeline there. */
static uint64_t play_timeline(void)
{
    struct err e;

    open_player();
    if (timeline_open(&timeline, &player, BUDGET, &e) < 0)
        fail(e.text);
    const uint64_t began = host_now_ns();
    if (timeline_continue(&timeline, &e) != TIMELINE_END)
        fail("the recording does not play to its end with checkpoints");
    return host_now_ns() - began;
}

static void close_timeline(void)
{
    timeline_close(&timeline);
    close_player();
}

static void note_pauses(struct values *small, struct values *all)
{
    for (struct moment *m = timeline.first.moment.later; m; m = m->later) {
        add(all, checkpoint_of(m)->taken_ns);
        if (m->count <= PAGES_1)
            add(small, checkpoint_of(m)->taken_ns);
    }
}

/* TIMELINE_BEGIN is as good. */
static void travel(unsigned places, struct values *seeks, struct values *first,
                   struct values *others)
{
    const uint64_t last = player.ordinal;
    struct err e;

    for (unsigned place = 0; place < places; place++) {
        uint64_t began = host_now_ns();
        if (timeline_seek(&timeline, (uint64_t)rand() % last, &e) != TIMELINE_THERE)
            fail("a seek does not arrive");
        add(seeks, host_now_ns() - began);
        for (unsigned i = 0; i < BACK; i++) {
            began = host_now_ns();
            const enum timeline_stop stop = timeline_reverse_step(&timeline, &e);
            if (stop != TIMELINE_THERE && stop != TIMELINE_BEGIN)
                fail("a reverse step does not arrive");
            add(i ? others : first, host_now_ns() - began);
        }
    }
}

int main(int argc, char **argv)
{
    static struct values plain, with, ratio, seeks, first, others, small, all;
    static char self[4096];
    struct err e = {0};
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        fail("give a recording");
    struct invocation inv = {.self = self, .argv = argv, .host = HOST_AUTO};
    struct host_needs needs = {.guest_memory = 1024u << 20};
    if (host_redirect(&inv, &needs, &status, &e)) {
        if (e.text[0])
            fail(e.text);
        return status;
    }
    path = argv[1];
    srand(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        const uint64_t without_ns = play(), with_ns = play_timeline();
        add(&plain, without_ns);
        add(&with, with_ns);
        add(&ratio, with_ns * 100000000 / without_ns);
        note_pauses(&small, &all);
        if (pair == PAIRS - 1)
            travel(argc > 2 ? (unsigned)atoi(argv[2]) : PLACES, &seeks, &first, &others);
        close_timeline();
    }
    printf("| ms | n | median | 90 %% | most |\n|---|---|---|---|---|\n");
    line("played", &plain);
    line("played with checkpoints", &with);
    line("the same by each other, in hundredths", &ratio);
    line("seek to a random sync point", &seeks);
    line("first reverse-stepi there", &first);
    line("the next ones", &others);
    line("pause for a checkpoint of at most 655 pages", &small);
    line("pause for any checkpoint", &all);
    return 0;
}
