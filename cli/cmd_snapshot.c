#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/playing.h"
#include "cli/following.h"
#include "recording/meta.h"
#include "replay/divergence.h"

struct snapshot_options {
    struct snapshot_place place;
    uint64_t at;    /* 0: the last sync point */
    uint64_t every; /* sync points; 0: one snapshot only */
    uint64_t last;  /* sync point of the recording */
    const char *name;
    struct disk_wish disks[MAX_DISKS];
    unsigned disk_count;
    const struct clock_ops *clock;
    bool quiet;
};

static int take_name(void *into, const char *value, struct err *e)
{
    ((struct snapshot_options *)into)->name = value;
    return snapshot_name_valid(value)
               ? 0
               : err_set(e, STATUS_USAGE,
                         "--name takes up to %u letters, digits, '.', '_', '+' or '-', not '%s'",
                         SNAPSHOT_NAME_MAX, value);
}

static int take_disk(void *into, const char *value, struct err *e)
{
    struct snapshot_options *o = into;

    return following_name_disk(o->disks, &o->disk_count, value, e);
}

static const struct option_entry options[] = {
    NUMBER_OPTION(OPTION_NUMBER, "at", "POINT", struct snapshot_options, at, 1, UINT64_MAX - 1,
                  "the number of a sync point, from 1 on",
                  "where: the number of a sync point (see 'dittovm dump'; default: the last one)"),
    NUMBER_OPTION(OPTION_NUMBER, "every", "N", struct snapshot_options, every, 1, UINT64_MAX - 1,
                  "a number of sync points",
                  "at every N sync points, from --at (default: N) to the end"),
    CALL_OPTION(0, "name", "NAME", take_name, "what it is called (default: 1, 2, ...)"),
    CALL_OPTION(0, "disk", "IMG", take_disk,
                "the disk image that was recorded with, where it is now; of several disks all, in "
                "their order. With it, devices and disks are kept too, and dittovm run --from "
                "begins there; without, it replays to there"),
    CLOCK_OPTION(struct snapshot_options,
                 "how forced points are found: auto (default), pmu, landmark or step"),
    FLAG_OPTION('q', "quiet", struct snapshot_options, quiet, "say nothing"),
    END_OF_OPTIONS,
};

static int parse(struct snapshot_options *o, int argc, char **argv, struct err *e)
{
    *o = (struct snapshot_options){0};
    const int first = options_parse(options, o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE,
                       "snapshot: give one recording (see dittovm snapshot --help)");
    if (o->every && o->name)
        return err_set(e, STATUS_USAGE, "--every names its snapshots itself: 1, 2, ...");
    if (!o->at)
        o->at = o->every;
    return snapshot_place_parse(argv[first], &o->place, e);
}

static unsigned recorded_cpus(const struct recording *r)
{
    struct err unknown; /* it is refused where it is played */
    json_t *description = meta_load(r, &unknown);
    const unsigned cpus = description ? meta_cpus(description) : 0;

    json_decref(description);
    return cpus;
}

/* The place is a mark or a boot. */
static int choose_marked(struct snapshot_options *o, const struct recording *r, struct err *e)
{
    if (!mark_place_is(o->place.name))
        return err_set(e, STATUS_USAGE, "snapshot: give a recording, without @%s", o->place.name);
    if (o->at)
        return err_set(e, STATUS_USAGE, "snapshot: give either @%s, or --at or --every",
                       o->place.name);
    if (mark_place_find(r, o->place.name, &o->at, e) < 0)
        return -1;
    return o->at
               ? 0
               : err_set(e, STATUS_ERROR,
                         "%s is where the recording begins, before its first sync point: there is "
                         "nothing to be kept",
                         o->place.name);
}

/* Choose the place, and refuse what cannot be before a long replay. */
static int choose(struct snapshot_options *o, const struct recording *r, struct err *e)
{
    struct snapshot_list list;
    uint64_t last;
    int rc = 0;

    if (o->place.name[0] && choose_marked(o, r, e) < 0)
        return -1;
    if (o->disk_count && recorded_cpus(r) > 1)
        return err_set(e, STATUS_ERROR,
                       "snapshot --disk is for going live, which a machine with several CPUs, as "
                       "in %s, cannot; leave it out",
                       o->place.path);
    if (!recording_complete(r))
        return err_set(e, STATUS_ERROR, "%s cannot be added to: %s", recording_path(r),
                       recording_in_progress(r) ? "it is still being recorded"
                                                : "its recorder was killed before it had finished");
    if (access(recording_path(r), W_OK) < 0)
        return err_set(e, STATUS_ERROR, "%s may not be written to; make a copy", recording_path(r));
    if (recording_last_sync(r, &last, e) < 0 || snapshot_list_load(&list, r, e) < 0)
        return -1;
    if (!last)
        rc = err_set(e, STATUS_ERROR, "%s has no sync point", recording_path(r));
    else if (o->at > last)
        rc = err_set(e, STATUS_ERROR, "%s has %llu sync points; %llu is behind its end",
                     recording_path(r), (unsigned long long)last, (unsigned long long)o->at);
    else
        rc = snapshot_list_check_name(&list, r, o->name ? o->name : "", e);
    o->last = last;
    if (!o->at)
        o->at = last;
    snapshot_list_free(&list);
    return rc;
}

static void say(const struct snapshot_entry *made, const struct snapshot_options *o)
{
    if (!o->quiet)
        text_print(stdout,
                   "dittovm: snapshot %s at sync point %llu: %llu pages, %llu of them new; dittovm "
                   "replay %s@%s\n",
                   made->name, (unsigned long long)made->ordinal, (unsigned long long)made->pages,
                   (unsigned long long)made->new_chunks, o->place.path, made->name);
}

/* 0: the replay stands there; a status otherwise, or -1. */
static int go_there(struct following *f, struct player *p, uint64_t at, struct err *e)
{
    if (following_play(f, p, at, e) < 0)
        return -1;
    if (p->status == PLAYER_DIVERGED) {
        divergence_report(p, stderr);
        return STATUS_DIVERGED;
    }
    if (!p->at_sync || p->ordinal < at)
        return err_set(e, STATUS_ERROR, "stopped behind sync point %llu, before %llu",
                       (unsigned long long)p->ordinal, (unsigned long long)at);
    return 0;
}

/* At o->at; or there, and at every so many sync points behind it. In the middle of an instruction:
 * behind that. */
static int take_all(struct snapshot_adder *a, struct player *p, const struct snapshot_options *o,
                    struct err *e)
{
    const struct following_request request = {
        .recording = o->place.path,
        .disks = o->disks,
        .disk_count = o->disk_count,
        .required = o->disk_count > 0, /* who names images wants them */
        .quiet = o->quiet,
    };
    struct following f = {0};
    struct snapshot_entry made = {0};
    int rc = following_begin(&f, p, &request, o->at, e);

    for (uint64_t at = o->at; rc == 0 && at <= o->last; at += o->every) {
        rc = go_there(&f, p, at, e);
        const bool is_made = p->ordinal == made.ordinal; /* for one before it */
        if (rc == 0 && !is_made)
            rc = following_take(&f, p, a, o->name, &made, e);
        if (rc == 0 && !is_made)
            say(&made, o);
        if (!o->every || o->last - at < o->every)
            break;
    }
    following_end(&f);
    return rc;
}

static int make(const struct snapshot_options *o, struct recording *r, struct err *e)
{
    struct snapshot_adder adder;
    struct player p;
    struct err later;

    if (snapshot_adder_open(&adder, recording_path(r), e) < 0)
        return -1;
    if (player_open(&p, r, o->clock, e) < 0) {
        snapshot_adder_abort(&adder);
        return -1;
    }
    int rc = take_all(&adder, &p, o, e);
    player_close(&p);
    /* Those that were made stay, also when the way to the next one failed. */
    if (adder.added)
        return snapshot_adder_finish(&adder, rc ? &later : e) < 0 && rc == 0 ? -1 : rc;
    snapshot_adder_abort(&adder);
    return rc;
}

/* Once more in the emulated host, if it runs there. */
static int check(struct snapshot_options *o, struct err *e)
{
    struct recording *r = recording_open(o->place.path, e);

    if (!r)
        return -1;
    int rc = choose(o, r, e);
    recording_close(r);
    return rc;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct snapshot_options o;
    struct host_needs needs;
    int status;

    if (parse(&o, argc, argv, e) < 0 || check(&o, e) < 0 ||
        playing_needs(&o.place, UINT64_MAX, true, &needs, e) < 0)
        return -1;
    if (host_redirect(inv, &needs, &status, e))
        return status;
    struct recording *r = recording_open(o.place.path, e);
    if (!r)
        return -1;
    int rc = make(&o, r, e);
    recording_close(r);
    return rc;
}

const struct command command_snapshot = {
    .name = "snapshot",
    .summary = "keep the machine's state at a sync point in its recording",
    .usage = "snapshot [OPTIONS] REC[@mark:TEXT]",
    .about =
        "Replays a recording to a sync point, or to a mark, and keeps the machine's state there "
        "in the recording, so that\n"
        "dittovm replay REC@NAME begins at it, and dittovm replay --gdb is there in a moment. "
        "'dittovm info'\n"
        "lists the snapshots of a recording.",
    .options = options,
    .run = run,
};
