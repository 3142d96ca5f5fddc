#include "cli/playing.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/stop_signals.h"
#include "recording/meta.h"
#include "replay/divergence.h"

/* How often it is said how far it is; each time threads begin anew, where there are some. */
#define PROGRESS_SYNCS         2000
#define PROGRESS_SYNCS_AT_ONCE 20000
/* After how many seconds of a landing its place is said. */
#define LANDING_LASTS_S 10

static void interrupt_player(void *opaque)
{
    player_interrupt(opaque);
}

/* The sync point of a place that is a mark or a boot; -1: there is none, or `until` is before it.
 */
static int find_marked(const struct recording *r, const char *name, uint64_t until, uint64_t *at,
                       struct err *e)
{
    if (mark_place_find(r, name, at, e) < 0)
        return -1;
    return *at <= until ? 0
                        : err_set(e, STATUS_USAGE, "--to %llu is before '%s', at sync point %llu",
                                  (unsigned long long)until, name, (unsigned long long)*at);
}

/* The snapshot that was named; NULL with an error when there is none, or `until` is before it. */
static const struct snapshot_entry *find(const struct snapshot_list *list,
                                         const struct recording *r, const char *name,
                                         uint64_t until, struct err *e)
{
    const struct snapshot_entry *entry = snapshot_list_find(list, r, name, e);

    if (!entry || entry->ordinal <= until)
        return entry;
    err_set(e, STATUS_USAGE, "--to %llu is before the snapshot '%s', at sync point %llu",
            (unsigned long long)until, name, (unsigned long long)entry->ordinal);
    return NULL;
}

static int check_place(const struct recording *r, const char *name, uint64_t until, struct err *e)
{
    struct snapshot_list list;
    uint64_t at;

    if (!name[0])
        return 0;
    if (mark_place_is(name))
        return find_marked(r, name, until, &at, e);
    if (snapshot_list_load(&list, r, e) < 0)
        return -1;
    int rc = find(&list, r, name, until, e) ? 0 : -1;
    snapshot_list_free(&list);
    return rc;
}

int playing_needs(const struct snapshot_place *place, uint64_t until, bool adds,
                  struct host_needs *needs, struct err *e)
{
    struct recording *recording = recording_open(place->path, e);

    if (!recording)
        return -1;
    json_t *description = meta_load(recording, e);
    *needs = (struct host_needs){
        .guest_memory = meta_memory(description),
        .frame_rf = frame_rf_named(meta_frame_rf(description)),
        .in_progress = recording_in_progress(recording),
    };
    if (adds)
        needs->write_paths[needs->write_path_count++] = place->path;
    if (adds && recording_complete(recording))
        needs->added_to = place->path;
    int rc = description && guest_memory_check_host(needs->guest_memory, e) == 0
                 ? check_place(recording, place->name, until, e)
                 : -1;
    json_decref(description);
    recording_close(recording);
    return rc;
}

struct landings_said {
    bool progress;
    uint64_t ordinal; /* of the last one that was said to last */
};

/* On a terminal each second; and once, with what may be the reason, where it lasts. */
static void say_landing(const struct player *p, uint64_t ordinal, uint64_t rip, unsigned seconds,
                        void *opaque)
{
    struct landings_said *const said = opaque;

    if (said->progress)
        fprintf(stderr,
                "\r\033[Kdittovm: %u%% replayed; a forced point before sync point %" PRIu64
                ", rip %#" PRIx64 ", is looked for: %u s ",
                player_progress(p), ordinal, rip, seconds);
    if (seconds < LANDING_LASTS_S || said->ordinal == ordinal)
        return;
    said->ordinal = ordinal;
    fprintf(stderr,
            "%sdittovm: the forced point before sync point %" PRIu64 ", rip %#" PRIx64
            ", has been looked for for %u s and is looked for on\n",
            said->progress ? "\r\033[K" : "", ordinal, rip, seconds);
    divergence_of_cpu(p, stderr);
}

int playing_run(struct player *p, uint64_t until, bool progress, struct err *e)
{
    const uint64_t step = p->at_once ? PROGRESS_SYNCS_AT_ONCE : PROGRESS_SYNCS;
    int rc = 0;

    struct landings_said said = {.progress = progress};
    p->landing_lasts = say_landing;
    p->landing_opaque = &said;
    const struct stopper stopper = {interrupt_player, p};
    stop_signals_call(&stopper);
    while (rc == 0) {
        const uint64_t next = p->ordinal + step;
        rc = player_run_to_place(p, progress && next < until ? next : until, e);
        if (!progress || p->status != PLAYER_STOPPED || p->ordinal < next)
            break;
        fprintf(stderr, "\rdittovm: %u%% replayed ", player_progress(p));
    }
    stop_signals_call(NULL);
    p->landing_lasts = NULL;
    if (progress)
        fputs("\r\033[K", stderr);
    return rc;
}

/* To there, from the last snapshot before, unseen. */
static int go_to_mark(struct player *p, uint64_t at, struct err *e)
{
    void (*const console)(void *opaque, uint8_t byte) = p->console;

    p->console = NULL;
    const int rc = playing_run(p, at, false, e);
    p->console = console;
    return rc;
}

int playing_begin(struct player *p, const char *name, uint64_t until, struct err *e)
{
    const bool marked = mark_place_is(name);
    const struct snapshot_entry *from;
    struct snapshot_list list;
    uint64_t at = until;
    int rc = 0;

    if (marked && find_marked(p->recording, name, until, &at, e) < 0)
        return -1;
    if (snapshot_list_load(&list, p->recording, e) < 0)
        return -1;
    if (name[0] && !marked)
        from = find(&list, p->recording, name, until, e);
    else
        from = snapshot_list_before(&list, at);
    if (!from && name[0] && !marked)
        rc = -1;
    else if (from)
        rc = player_enter(p, from, e);
    snapshot_list_free(&list);
    return rc == 0 && marked ? go_to_mark(p, at, e) : rc;
}

/* ---- a place, and what is made of it ---- */

int playing_find_point(const struct recording *r, const char *name, uint64_t *at, struct err *e)
{
    struct snapshot_list list;
    uint64_t last;

    *at = UINT64_MAX;
    if (!name[0])
        return 0;
    if (recording_last_sync(r, &last, e) < 0 || snapshot_list_load(&list, r, e) < 0)
        return -1;
    const int rc = snapshot_list_find_point(&list, r, name, last, at, e);
    snapshot_list_free(&list);
    return rc;
}

int playing_point_needs(const struct snapshot_place *place, const char *output,
                        struct host_needs *needs, struct err *e)
{
    /* Of the recording alone: a place may be a number, too, and was looked for. */
    struct snapshot_place whole = *place;

    whole.name[0] = '\0';
    if (playing_needs(&whole, UINT64_MAX, false, needs, e) < 0)
        return -1;
    needs->write_paths[needs->write_path_count++] = output;
    return 0;
}

int playing_arrived(const struct player *p, uint64_t at, struct err *e)
{
    if (p->status == PLAYER_DIVERGED) {
        divergence_report(p, stderr);
        return STATUS_DIVERGED;
    }
    const bool there =
        at == UINT64_MAX ? p->status == PLAYER_ENDED || p->status == PLAYER_CUT : p->ordinal >= at;
    return there ? 0
                 : err_set(e, STATUS_ERROR, "interrupted behind sync point %llu",
                           (unsigned long long)p->ordinal);
}

const char *playing_which_end(const struct player *p, uint64_t at)
{
    if (at != UINT64_MAX)
        return "";
    return p->status == PLAYER_ENDED ? ", the end" : ", where the recorder was killed";
}
