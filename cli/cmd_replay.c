#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/now.h"
#include "cli/playing.h"
#include "cli/replaying.h"
#include "host/gdb_listen.h"
#include "vmm/machine/console.h"

#define CHECKPOINT_MEMORY (256ull << 20)

static int take_gdb(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct replay_options *)into)->gdb = value ? value : GDB_DEFAULT_PORT;
    return 0;
}

static const struct option_entry replay_entries[] = {
    NUMBER_OPTION(OPTION_NUMBER, "to", "POINT", struct replay_options, until, 0, UINT64_MAX - 1,
                  "the number of a sync point",
                  "stop at sync point POINT (see 'dittovm dump'); with --gdb, begin there"),
    CLOCK_OPTION(struct replay_options,
                 "how forced points are found: auto (default), pmu, landmark or step"),
    FLAG_OPTION(0, "landings", struct replay_options, landings,
                "say what finding the forced points has cost, and note it in REC"),
    FLAG_OPTION(
        0, "parallel", struct replay_options, parallel,
        "have CPUs that ran at the same time (run --smp crew) do so again; a CPU waits for others "
        "only "
        "where it gets memory from them"),
    CALL_OPTION(0, "gdb", "[WHERE]", take_gdb,
                "wait for gdb on this machine's port WHERE (default 1234) or on unix:PATH"),
    FLAG_OPTION(0, "diverge", struct replay_options, diverge,
                "let gdb change registers and memory: what follows is played with the recorded "
                "events until "
                "it no "
                "longer fits to them; going back undoes it"),
    NUMBER_OPTION(OPTION_SIZE, "checkpoint-memory", "SIZE", struct replay_options,
                  checkpoint_memory, 16 << 20, UINT64_MAX, "16M or more",
                  "memory for going back, with --gdb (default 256M)"),
    FLAG_OPTION('q', "quiet", struct replay_options, quiet, "do not show the machine's output"),
    FLAG_OPTION(0, "json", struct replay_options, json, "the summary as JSON on stderr"),
    END_OF_OPTIONS,
};

static const struct option_entry verify_entries[] = {
    NUMBER_OPTION(OPTION_NUMBER, "to", "POINT", struct replay_options, until, 0, UINT64_MAX - 1,
                  "the number of a sync point", "stop at sync point POINT (see 'dittovm dump')"),
    CLOCK_OPTION(struct replay_options,
                 "how forced points are found: auto (default), pmu, landmark or step"),
    FLAG_OPTION(0, "landings", struct replay_options, landings,
                "say what finding the forced points has cost, and note it in REC"),
    FLAG_OPTION(0, "parallel", struct replay_options, parallel,
                "have CPUs that ran at the same time (run --smp crew) do so again"),
    FLAG_OPTION('q', "quiet", struct replay_options, quiet, "no progress on a terminal"),
    FLAG_OPTION(0, "json", struct replay_options, json, "the result as JSON on stdout"),
    END_OF_OPTIONS,
};

static int parse(struct replay_options *o, const struct option_entry *entries, int argc,
                 char **argv, struct err *e)
{
    *o = (struct replay_options){.until = UINT64_MAX, .checkpoint_memory = CHECKPOINT_MEMORY};
    const int first = options_parse(entries, o, argc, argv, e);
    if (first < 0)
        return -1;
    if (first != argc - 1)
        return err_set(e, STATUS_USAGE, "%s: give one recording (see dittovm %s --help)", argv[0],
                       argv[0]);
    o->recording = argv[first];
    return snapshot_place_parse(o->recording, &o->place, e);
}

static void describe(struct landing_log *log, const struct player *p, uint64_t ns)
{
    log->ns = ns;
    log->time = (uint64_t)time(NULL);
    snprintf(log->clock, sizeof log->clock, "%s", p->cpu->clock.ops->name);
}

/* For dittovm info --landings. A recording that cannot be written to is as good. */
static void note_landings(const struct player *p, const struct replay_options *o)
{
    struct err e = {0};

    if (p->status == PLAYER_ENDED && o->landings &&
        landing_log_save(&p->landings, o->place.path, &e) < 0)
        fprintf(stderr, "dittovm: %s; the recording is as it was\n", e.text);
}

/* At the snapshot that was named. Nobody sees what a quiet replay does on its way, so it may also
 * begin at the last one before where it is to stop. */
static int begin(struct player *p, const struct replay_options *o, bool show, struct err *e)
{
    if (o->place.name[0])
        return playing_begin(p, o->place.name, o->until, e);
    return show && o->quiet && o->until != UINT64_MAX ? playing_begin(p, "", o->until, e) : 0;
}

/* By a signal: what is behind it was not compared. */
static bool stopped_early(const struct player *p, uint64_t until)
{
    return p->status == PLAYER_STOPPED && !(p->at_sync && p->ordinal >= until);
}

static int play(struct recording *recording, const struct replay_options *o, bool show,
                struct err *e)
{
    struct player p;
    struct console *console = NULL;
    uint64_t start = host_now_ns();

    if (player_open(&p, recording, o->clock, e) < 0)
        return -1;
    if (o->parallel && !p.parallel) {
        player_close(&p);
        return err_set(e, STATUS_USAGE,
                       "the CPUs of %s did not run at the same time; replay it without --parallel",
                       o->place.path);
    }
    p.at_once = o->parallel;
    const bool shows = show && !o->quiet;
    if (shows) {
        console = console_open(-1, STDOUT_FILENO, true, e);
        p.console = console_put;
        p.console_opaque = console;
    }
    int rc = shows && !console ? -1 : begin(&p, o, show, e);
    /* Where the machine's output does not show how far it is; verify --quiet says nothing. */
    if (rc == 0)
        rc = playing_run(&p, o->until, show == o->quiet && !o->json && isatty(STDERR_FILENO), e);
    console_close(console);
    if (rc == 0) {
        describe(&p.landings, &p, host_now_ns() - start);
        note_landings(&p, o); /* first: a report sorts them */
        rc = replay_report(&p, o, shows ? stderr : stdout);
        if (!show && rc == STATUS_OK && stopped_early(&p, o->until))
            rc = STATUS_ERROR;
    }
    player_close(&p);
    return rc;
}

static int replay_with(const struct invocation *inv, int argc, char **argv, bool show,
                       struct err *e)
{
    struct replay_options o;
    struct host_needs needs;
    int status;

    if (parse(&o, show ? replay_entries : verify_entries, argc, argv, e) < 0 ||
        playing_needs(&o.place, o.gdb ? UINT64_MAX : o.until, o.gdb || o.landings, &needs, e) < 0)
        return -1;
    if (o.diverge && !o.gdb)
        return err_set(e, STATUS_USAGE, "--diverge goes with --gdb");
    if (o.parallel && o.gdb)
        return err_set(e, STATUS_USAGE, "--parallel does not go with --gdb");
    if (o.landings && o.place.name[0])
        return err_set(e, STATUS_USAGE, "--landings is of a whole recording; give it without @%s",
                       o.place.name);
    needs.gdb = o.gdb;
    if (o.gdb) /* checkpoints hold all that the guest changes once, and more in their memory */
        needs.guest_memory += needs.guest_memory + o.checkpoint_memory;
    if (host_redirect(inv, &needs, &status, e))
        return status;
    struct recording *recording = recording_open(o.place.path, e);
    if (!recording)
        return -1;
    int rc = o.gdb ? replay_under_gdb(recording, &o, e) : play(recording, &o, show, e);
    recording_close(recording);
    return rc;
}

static int run_replay(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    return replay_with(inv, argc, argv, true, e);
}

static int run_verify(const struct invocation *inv, int argc, char **argv, struct err *e)
{
    return replay_with(inv, argc, argv, false, e);
}

const struct command command_replay = {
    .name = "replay",
    .summary = "run a recorded machine again and show what it put out",
    .usage = "replay [OPTIONS] REC[@SNAPSHOT]",
    .about =
        "Runs the recorded machine again, instruction for instruction, and shows what it put out.\n"
        "Neither its disk image nor anything else is needed. Everything is compared with the "
        "recording;\n"
        "exit status 3 and a report mean that the replay diverged. With @SNAPSHOT it begins where "
        "that\n"
        "is (see 'dittovm snapshot'), with @mark:TEXT at that mark, with @boot:N at that boot "
        "(see\n"
        "'dittovm info').",
    .options = replay_entries,
    .run = run_replay,
};

const struct command command_verify = {
    .name = "verify",
    .summary = "replay a recording with every check; 0 identical, 3 diverged",
    .usage = "verify [OPTIONS] REC[@SNAPSHOT]",
    .about =
        "Replays a recording with every check and without showing the machine's output. Exit "
        "status 0:\n"
        "identical; 1: stopped by a signal; 3: it diverged, and the report says where and what "
        "differs;\n"
        "65: not a recording, or a damaged one.",
    .options = verify_entries,
    .run = run_verify,
};
