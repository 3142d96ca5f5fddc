#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/divergence.h"
#include "vmm/playing.h"

static const char help[] =
    "usage: dittovm snapshot [OPTIONS] REC\n"
    "\n"
    "Replays a recording to a sync point and keeps the machine's state there in the recording, so "
    "that\n"
    "dittovm replay REC@NAME begins at it, and dittovm replay --gdb is there in a moment. 'dittovm "
    "info'\n"
    "lists the snapshots of a recording.\n"
    "\n"
    "      --at POINT   where: the number of a sync point (see 'dittovm dump'; default: the last "
    "one)\n"
    "      --name NAME  what it is called (default: 1, 2, ...)\n"
    "      --clock NAME how forced points are found: auto (default), pmu, landmark or step\n"
    "  -q, --quiet      say nothing\n";

struct snapshot_options {
    struct snapshot_place place;
    uint64_t at; /* 0: the last sync point */
    const char *name;
    const struct clock_ops *clock;
    bool quiet;
};

static int parse_one(struct snapshot_options *o, int option, char **argv, struct err *e)
{
    switch (option) {
    case 'q':
        o->quiet = true;
        return 0;
    case 'a':
        if (parse_number(optarg, UINT64_MAX - 1, &o->at) < 0 || !o->at)
            return err_set(e, STATUS_USAGE,
                           "--at takes the number of a sync point, from 1 on, not '%s'", optarg);
        return 0;
    case 'n':
        o->name = optarg;
        if (!snapshot_name_valid(optarg))
            return err_set(e, STATUS_USAGE,
                           "--name takes up to %u letters, digits, '.', '_', '+' or '-', not '%s'",
                           SNAPSHOT_NAME_MAX, optarg);
        return 0;
    case 'c':
        return clock_option(optarg, &o->clock, e);
    default:
        return err_set(e, STATUS_USAGE, "snapshot: %s '%s' (see dittovm snapshot --help)",
                       option == ':' ? "a value is missing after" : "unknown option",
                       argv[optind - 1]);
    }
}

static int parse(struct snapshot_options *o, int argc, char **argv, struct err *e)
{
    static const struct option options[] = {
        {"at", required_argument, NULL, 'a'},
        {"name", required_argument, NULL, 'n'},
        {"clock", required_argument, NULL, 'c'},
        {"quiet", no_argument, NULL, 'q'},
        {0},
    };
    int option;

    *o = (struct snapshot_options){0};
    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":q", options, NULL)) != -1)
        if (parse_one(o, option, argv, e) < 0)
            return -1;
    if (optind != argc - 1)
        return err_set(e, STATUS_USAGE,
                       "snapshot: give one recording (see dittovm snapshot --help)");
    return snapshot_place_parse(argv[optind], &o->place, e);
}

/* Choose the place and the name, and refuse what cannot be before a long replay. */
static int choose(struct snapshot_options *o, const struct recording *r,
                  char name[SNAPSHOT_NAME_MAX + 1], struct err *e)
{
    struct snapshot_list list;
    uint64_t last;
    int rc = 0;

    if (o->place.name[0])
        return err_set(e, STATUS_USAGE, "snapshot: give a recording, without @%s", o->place.name);
    if (!recording_complete(r))
        return err_set(e, STATUS_ERROR,
                       "%s cannot be added to: its recorder was killed before it had finished",
                       recording_path(r));
    if (access(recording_path(r), W_OK) < 0)
        return err_set(e, STATUS_ERROR, "%s may not be written to; make a copy", recording_path(r));
    if (recording_last_sync(r, &last, e) < 0 || snapshot_list_load(&list, r, e) < 0)
        return -1;
    if (!last)
        rc = err_set(e, STATUS_ERROR, "%s has no sync point", recording_path(r));
    else if (o->at > last)
        rc = err_set(e, STATUS_ERROR, "%s has %llu sync points; --at %llu is behind its end",
                     recording_path(r), (unsigned long long)last, (unsigned long long)o->at);
    else if (list.count == SNAPSHOTS_MAX)
        rc = err_set(e, STATUS_ERROR, "%s has as many snapshots as it may have", recording_path(r));
    if (!o->at)
        o->at = last;
    if (o->name)
        snprintf(name, SNAPSHOT_NAME_MAX + 1, "%s", o->name);
    else
        snapshot_list_new_name(&list, name);
    for (size_t i = 0; rc == 0 && i < list.count; i++)
        if (!strcmp(list.at[i].name, name))
            rc = err_set(e, STATUS_ERROR, "%s has a snapshot '%s' already; give another --name",
                         recording_path(r), name);
    snapshot_list_free(&list);
    return rc;
}

/* The replay stands at the place. Ends the writer. */
static int add(struct player *p, struct recording_writer *w, const struct end_record *end,
               struct snapshot *s, struct err *e)
{
    struct chunk_store *chunks = chunks_create(w, e);
    struct bytes record = {0};
    int rc = chunks && snapshot_know_chunks(chunks, p->recording, e) == 0 ? 0 : -1;

    if (rc == 0)
        rc = snapshot_take(p, chunks, s, e);
    if (rc == 0) {
        snapshot_encode(&record, s);
        (void)writer_put(w, STREAM_SNAPSHOTS, record.data, record.len); /* writer_finish() says */
        rc = writer_finish(w, end->reason_code, end->reason, e);
    } else {
        writer_abort(w);
    }
    bytes_free(&record);
    chunks_destroy(chunks);
    return rc;
}

/* 0: the replay stands there; a status otherwise, or -1. */
static int go_there(struct player *p, const struct snapshot_options *o, struct err *e)
{
    if (playing_begin(p, "", o->at, e) < 0 ||
        playing_run(p, o->at, !o->quiet && isatty(STDERR_FILENO), e) < 0)
        return -1;
    if (p->status == PLAYER_DIVERGED) {
        divergence_report(p, stderr);
        return STATUS_DIVERGED;
    }
    if (!p->cpu.at_sync || p->cpu.ordinal != o->at)
        return err_set(e, STATUS_ERROR, "stopped behind sync point %llu; nothing was kept",
                       (unsigned long long)p->cpu.ordinal);
    return 0;
}

static int make(struct snapshot_options *o, struct recording *r, struct err *e)
{
    struct snapshot s = {0};
    struct end_record end;
    struct player p;

    if (choose(o, r, s.name, e) < 0)
        return -1;
    /* Held meanwhile, so that nobody else adds to it. */
    struct recording_writer *w = writer_reopen(recording_path(r), &end, e);
    if (!w)
        return -1;
    if (player_open(&p, r, o->clock, e) < 0) {
        writer_abort(w);
        return -1;
    }
    int rc = go_there(&p, o, e);
    if (rc)
        writer_abort(w);
    else
        rc = add(&p, w, &end, &s, e);
    if (rc == 0 && !o->quiet)
        printf("dittovm: snapshot %s at sync point %llu: %llu pages, %llu of them new; dittovm "
               "replay %s@%s\n",
               s.name, (unsigned long long)o->at, (unsigned long long)s.pages,
               (unsigned long long)s.new_chunks, recording_path(r), s.name);
    snapshot_free(&s);
    player_close(&p);
    return rc;
}

/* Before anything is started. */
static int check(const struct snapshot_options *o, struct err *e)
{
    struct snapshot_options copy = *o;
    char name[SNAPSHOT_NAME_MAX + 1];
    struct recording *r = recording_open(o->place.path, e);

    if (!r)
        return -1;
    int rc = choose(&copy, r, name, e);
    recording_close(r);
    return rc;
}

static int run(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    struct snapshot_options o;
    struct host_needs needs;
    int status;

    if (parse(&o, argc, argv, e) < 0 || check(&o, e) < 0 || playing_needs(&o.place, &needs, e) < 0)
        return -1;
    needs.write_paths[needs.write_path_count++] = o.place.path;
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
    .help = help,
    .run = run,
};
