/*
 * Time travel in a stretch of a recording, at random, against a model: the places of the stretch
 * are noted once, by single steps from its beginning. Then steps, breakpoints and watched memory in
 * both directions, seeking, and checkpoints must each lead to the place that the model says. Writes
 * TAP.
 *
 * usage: timeline_walk REC SEED ROUNDS ORDINAL BACK STEPS [OPERATIONS]
 *
 * The stretch begins BACK steps before sync point ORDINAL and is STEPS long. Each round is on a
 * timeline without checkpoints. For machines with one CPU.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/x86.h"
#include "replay/timeline.h"
#include "tests/tools/tool_host.h"

#define WATCHED            3u
#define MAX_STEPS          100000u
#define NUMBERED_MAX       8u
#define HOOK_BYTES         16u
#define OPCODE_CLI         0xfa
#define DEFAULT_OPERATIONS 40u

static struct recording *recording;
static struct player player;
static struct timeline timeline;
static unsigned number, bad;

/* What is known of a place of the stretch. */
struct place {
    struct kvm_regs regs;
    uint64_t ordinal;
    bool at_sync;
    bool window; /* an interrupt window is passed within the step from here */
    uint8_t opcode;
    uint64_t value[WATCHED];
};

static struct place *places;
static unsigned count;            /* of steps: places[count] is the last one */
static uint64_t watched[WATCHED]; /* linear addresses of 64-bit words */

static void fail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static struct place look(void)
{
    struct place p = {.at_sync = player.at_sync, .ordinal = player.ordinal};
    struct err e = {0};

    if (player_finish_exit(&player, &e) < 0)
        fail(e.text);
    p.regs = *player.cpu->vcpu.regs;
    p.regs.rflags &= ~RFLAGS_RF; /* a step may leave it behind an IRET to where a fault was */
    vcpu_read(&player.cpu->vcpu, p.regs.rip, &p.opcode, 1);
    for (unsigned i = 0; i < WATCHED; i++)
        vcpu_read(&player.cpu->vcpu, watched[i], &p.value[i], sizeof p.value[i]);
    return p;
}

/* An open timeline at the beginning of the stretch. */
static void begin(uint64_t ordinal, unsigned back)
{
    struct err e = {0};

    if (player_open(&player, recording, NULL, &e) < 0 ||
        timeline_open(&timeline, &player, 256u << 20, &e) < 0 ||
        timeline_seek(&timeline, ordinal, &e) != TIMELINE_THERE)
        fail(e.text);
    for (unsigned i = 0; i < back; i++)
        if (timeline_reverse_step(&timeline, &e) != TIMELINE_THERE)
            fail(e.text[0] ? e.text : "the stretch begins before the recording");
}

static void end(void)
{
    timeline_close(&timeline);
    player_close(&player);
}

/* Note the places of the stretch. Its end may be that of the recording. */
static void note_places(unsigned steps)
{
    struct err e = {0};

    places[0] = look();
    for (count = 0; count < steps; count++) {
        const enum timeline_stop stop = timeline_step(&timeline, &e);
        if (stop == TIMELINE_END)
            return;
        if (stop != TIMELINE_THERE)
            fail(e.text);
        places[count + 1] = look();
        places[count].window = places[count + 1].ordinal > places[count].ordinal &&
                               player.cpu->last_sync.kind == EXIT_WINDOW;
    }
}

/* ---- the model ---- */

/* The step from there enters a handler of an interrupt. */
static bool is_entry(unsigned i)
{
    return i < count && (places[i].regs.rflags & RFLAGS_IF) &&
           !(places[i + 1].regs.rflags & RFLAGS_IF) && places[i].opcode != OPCODE_CLI;
}

/* Whether a breakpoint stops there: not where an interrupt comes first, except at a forced point,
 * which is landed on before. -1: it may or may not, at an interrupt window. */
static int is_hit(unsigned i, uint64_t rip)
{
    if (places[i].regs.rip != rip)
        return 0;
    if (rip - player.hook.rip + HOOK_BYTES < 2 * HOOK_BYTES) /* our own code, or what calls it */
        return -1;
    return places[i].window ? -1 : !(is_entry(i) && places[i].at_sync);
}

static bool changes(unsigned i, unsigned w)
{
    return i && places[i].value[w] != places[i - 1].value[w];
}

/* The place of a sync point of the stretch. */
static unsigned place_of_sync(uint64_t ordinal)
{
    unsigned i = 0;

    while (places[i].ordinal < ordinal)
        i++;
    return i && !(places[i].ordinal == ordinal && places[i].at_sync) ? i - 1 : i;
}

static bool is_there(unsigned i)
{
    const struct place here = look();

    return !memcmp(&here.regs, &places[i].regs, sizeof here.regs) &&
           !memcmp(here.value, places[i].value, sizeof here.value);
}

/* ---- operations ---- */

/* Where the walk is, and what is known of it. */
struct walk {
    unsigned at;
    struct {
        uint64_t checkpoint;
        unsigned place;
    } numbered[NUMBERED_MAX];
    unsigned numbered_count;
    char done[64]; /* the operation */
};

static bool conclude(struct walk *w, unsigned to, enum timeline_stop stop,
                     enum timeline_stop expected, const struct err *e)
{
    const unsigned from = w->at;
    const bool good = stop == expected && is_there(to);

    w->at = to;
    if (good)
        return true;
    printf("# %s: from place %u to place %u (sync point %" PRIu64 ", rip %#llx)\n", w->done, from,
           to, places[to].ordinal, places[to].regs.rip);
    printf("# is at sync point %" PRIu64 ", rip %#llx, stop %d%s%s\n", player.ordinal,
           player.cpu->vcpu.regs->rip, stop, stop == TIMELINE_FAILED ? ": " : "",
           stop == TIMELINE_FAILED ? e->text : "");
    return false;
}

static bool do_steps(struct walk *w, bool back)
{
    const unsigned most = back ? w->at : count - w->at, n = 1 + (unsigned)rand() % 4;
    struct err e = {0};
    enum timeline_stop stop = TIMELINE_THERE;

    if (n > most)
        return true;
    snprintf(w->done, sizeof w->done, "%u steps %s", n, back ? "back" : "on");
    for (unsigned i = 0; i < n && stop == TIMELINE_THERE; i++)
        stop = back ? timeline_reverse_step(&timeline, &e) : timeline_step(&timeline, &e);
    return conclude(w, back ? w->at - n : w->at + n, stop, TIMELINE_THERE, &e);
}

/* The place where a breakpoint stops next; UINT32_MAX: none in the stretch, or it is not known. */
static unsigned next_hit(unsigned at, uint64_t rip, bool back)
{
    unsigned i = at;

    for (;;) {
        if (back ? i == 0 : i == count)
            return UINT32_MAX;
        i = back ? i - 1 : i + 1;
        const int hit = is_hit(i, rip);
        if (hit)
            return hit > 0 ? i : UINT32_MAX;
    }
}

static bool do_breakpoint(struct walk *w, bool back)
{
    const uint64_t rip = places[(unsigned)rand() % (count + 1)].regs.rip;
    const unsigned to = next_hit(w->at, rip, back);
    struct breakpoint b = {.va = rip, .any_cpl = true};
    struct err e = {0};

    if (to == UINT32_MAX)
        return true;
    snprintf(w->done, sizeof w->done, "%s to a breakpoint at %#" PRIx64, back ? "back" : "on", rip);
    if (breakpoints_add(&player.stops, &b, &e) < 0)
        fail(e.text);
    const enum timeline_stop stop =
        back ? timeline_reverse_continue(&timeline, &e) : timeline_continue(&timeline, &e);
    breakpoints_remove(&player.stops, &b);
    return conclude(w, to, stop, TIMELINE_BREAKPOINT, &e);
}

static bool do_watchpoint(struct walk *w, bool back)
{
    const unsigned word = (unsigned)rand() % WATCHED;
    struct watchpoint watch = {.va = watched[word], .len = 8};
    struct err e = {0};
    unsigned to = back ? w->at : w->at + 1;

    while (back ? to > 0 && !changes(to, word) : to <= count && !changes(to, word))
        to += back ? UINT32_MAX : 1;
    if (to == 0 || to > count)
        return true;
    snprintf(w->done, sizeof w->done, "%s to a change of %#" PRIx64, back ? "back" : "on",
             watched[word]);
    if (breakpoints_watch(&player.stops, &watch, &e) < 0)
        fail(e.text);
    const enum timeline_stop stop =
        back ? timeline_reverse_continue(&timeline, &e) : timeline_continue(&timeline, &e);
    breakpoints_unwatch(&player.stops, &watch);
    return conclude(w, back ? to - 1 : to, stop, TIMELINE_BREAKPOINT, &e);
}

static bool do_seek(struct walk *w)
{
    const uint64_t first = places[0].ordinal + !places[0].at_sync, last = places[count].ordinal;
    struct err e = {0};

    if (last <= first)
        return true;
    const uint64_t ordinal = first + (uint64_t)rand() % (last - first + 1);
    snprintf(w->done, sizeof w->done, "to sync point %" PRIu64, ordinal);
    const enum timeline_stop stop = timeline_seek(&timeline, ordinal, &e);
    return conclude(w, place_of_sync(ordinal), stop, TIMELINE_THERE, &e);
}

static bool do_checkpoint(struct walk *w)
{
    struct err e = {0};

    if (w->numbered_count == NUMBERED_MAX)
        return true;
    snprintf(w->done, sizeof w->done, "a checkpoint");
    const struct checkpoint *c = timeline_checkpoint(&timeline, &e);
    if (!c)
        fail(e.text);
    w->numbered[w->numbered_count].checkpoint = c->number;
    w->numbered[w->numbered_count++].place = w->at;
    return conclude(w, w->at, TIMELINE_THERE, TIMELINE_THERE, &e);
}

static bool do_go_to_checkpoint(struct walk *w)
{
    struct err e = {0};

    if (!w->numbered_count)
        return true;
    const unsigned n = (unsigned)rand() % w->numbered_count;
    snprintf(w->done, sizeof w->done, "to checkpoint %" PRIu64, w->numbered[n].checkpoint);
    struct moment *m = &timeline.first.moment;
    while (m && checkpoint_of(m)->number != w->numbered[n].checkpoint)
        m = m->later;
    if (!m) {
        printf("# checkpoint %" PRIu64 " is gone\n", w->numbered[n].checkpoint);
        return false;
    }
    const enum timeline_stop stop =
        timeline_restore(&timeline, checkpoint_of(m), &e) < 0 ? TIMELINE_FAILED : TIMELINE_THERE;
    return conclude(w, w->numbered[n].place, stop, TIMELINE_THERE, &e);
}

static bool operate(struct walk *w)
{
    switch (rand() % 10) {
    case 0:
        return do_steps(w, false);
    case 1:
        return do_steps(w, true);
    case 2:
        return do_breakpoint(w, false);
    case 3:
    case 4:
        return do_breakpoint(w, true);
    case 5:
        return do_watchpoint(w, false);
    case 6:
        return do_watchpoint(w, true);
    case 7:
        return do_seek(w);
    case 8:
        return do_checkpoint(w);
    default:
        return do_go_to_checkpoint(w);
    }
}

/* Checkpoints are in the order of time. */
static bool in_order(void)
{
    for (const struct moment *m = timeline.first.moment.later; m && m->later; m = m->later) {
        const struct checkpoint *a = (const struct checkpoint *)m,
                                *b = (const struct checkpoint *)m->later;
        if (a->mark.ordinal > b->mark.ordinal ||
            (a->mark.ordinal == b->mark.ordinal && !a->mark.at_sync && b->mark.at_sync)) {
            printf("# the checkpoints of sync points %" PRIu64 " and %" PRIu64
                   " are out of order\n",
                   a->mark.ordinal, b->mark.ordinal);
            return false;
        }
    }
    return true;
}

static void walk_about(unsigned round, unsigned operations)
{
    struct walk w = {.at = 0};
    bool good = is_there(0);

    timeline.spacing_ns = round % 2 ? 0 : UINT64_MAX;
    for (unsigned i = 0; i < operations && good; i++)
        good = operate(&w) && in_order();
    printf("%sok %u walk %u\n", good ? "" : "not ", ++number, round);
    bad += !good;
}

/* Words that change in the stretch: where something was pushed. */
static void choose_watched(void)
{
    for (unsigned w = 0; w < WATCHED; w++)
        watched[w] = (places[(unsigned)rand() % (count + 1)].regs.rsp - 8) & ~7ull;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int status;

    if (argc < 7)
        return 2;
    const struct host_needs needs = {.guest_memory = 512u << 20};
    if (tool_ran_in_host("timeline_walk", argv, &needs, &status))
        return status;
    const unsigned seed = (unsigned)atoi(argv[2]), rounds = (unsigned)atoi(argv[3]),
                   back = (unsigned)atoi(argv[5]), steps = (unsigned)atoi(argv[6]),
                   operations = argc > 7 ? (unsigned)atoi(argv[7]) : DEFAULT_OPERATIONS;
    const uint64_t ordinal = strtoull(argv[4], NULL, 0);
    recording = recording_open(argv[1], &e);
    places = steps < MAX_STEPS ? calloc(steps + 1, sizeof *places) : NULL;
    if (!recording || !places)
        fail(e.text);

    for (unsigned pass = 0; pass < 2; pass++) {
        begin(ordinal, back);
        note_places(steps);
        end();
        srand(seed);
        if (pass == 0)
            choose_watched();
    }
    printf("# %u steps, sync points %" PRIu64 " to %" PRIu64 "\n", count, places[0].ordinal,
           places[count].ordinal);
    for (unsigned round = 0; round < rounds; round++) {
        srand(seed + round);
        begin(ordinal, back);
        walk_about(round, operations);
        end();
    }
    printf("1..%u\n", number);
    free(places);
    recording_close(recording);
    return bad ? 1 : 0;
}
