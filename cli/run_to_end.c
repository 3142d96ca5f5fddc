#include "cli/run_to_end.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/now.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "host/host_control.h"
#include "vmm/machine/control.h"

static void stop_machine(void *opaque)
{
    machine_stop(opaque);
}

static void summarize(const struct run_options *o, const struct machine *m, enum end_reason reason,
                      const struct recorder_stats *stats, double seconds)
{
    struct rusage usage;
    struct stat st;
    char digest[DIGEST_TEXT];

    if (o->record && m->ended_between && !o->json)
        fprintf(stderr,
                "dittovm: the guest came to no place where a replay finds it again: the "
                "recording ends at its last sync point, behind which nothing is compared\n");
    if (o->quiet || (o->unit.root && !o->json))
        return;
    getrusage(RUSAGE_SELF, &usage);
    digest_format(&stats->end, digest);
    long long bytes = o->record && stat(o->recording, &st) == 0 ? (long long)st.st_size : 0;
    if (o->json) {
        json_t *j = json_pack(
            "{s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "end",
            end_reason_text(reason), "seconds", seconds, "exits", (json_int_t)m->stats.exits,
            "interrupts", (json_int_t)m->stats.interrupts, "forced", (json_int_t)m->stats.forced,
            "forced_at_entries", (json_int_t)m->stats.entries, "syncs", (json_int_t)stats->syncs,
            "events", (json_int_t)stats->events, "bytes", (json_int_t)bytes, "max_rss_kib",
            (json_int_t)usage.ru_maxrss, "digest", digest);
        if (o->checkpoint_s)
            json_object_update_new(
                j, json_pack("{s:I, s:f, s:f}", "snapshots", (json_int_t)stats->snapshots,
                             "snapshot_ms", (double)m->stats.snapshot_ns / 1e6, "snapshot_max_ms",
                             (double)m->stats.snapshot_max_ns / 1e6));
        if (o->reboots)
            json_object_set_new(j, "boots", json_integer((json_int_t)m->stats.boots + 1));
        if (o->record)
            json_object_set_new(j, "end_compared", json_boolean(!m->ended_between));
        if (o->domain_name)
            json_object_set_new(j, "domain", domain_pack(&o->domain));
        if (m->config.command && m->config.command->has_ended)
            json_object_set_new(j, "status", json_integer(m->config.command->status));
        json_dumpf(j, stderr, JSON_SORT_KEYS);
        fputc('\n', stderr);
        json_decref(j);
        return;
    }
    fprintf(stderr,
            "dittovm: the machine %s after %.1f s: %llu exits, %llu interrupts, %llu forced\n",
            reason == END_POWEROFF || reason == END_RESET ? end_reason_text(reason) : "ended",
            seconds, (unsigned long long)m->stats.exits, (unsigned long long)m->stats.interrupts,
            (unsigned long long)m->stats.forced);
    if (m->stats.boots)
        fprintf(stderr, "dittovm: it has booted %llu times\n",
                (unsigned long long)m->stats.boots + 1);
    if (stats->snapshots)
        fprintf(stderr,
                "dittovm: %llu snapshots, for which the machine stood still %.0f ms at most\n",
                (unsigned long long)stats->snapshots, (double)m->stats.snapshot_max_ns / 1e6);
    if (o->record)
        text_print(stderr,
                   "dittovm: recorded in %s, %lld bytes; replay it with: dittovm replay %s\n",
                   o->recording, bytes, o->recording);
}

/* Run to the end, and finish the recording whatever happened: what was recorded can be replayed. */
static int run_machine(struct machine *m, struct recorder *recorder, enum end_reason *reason,
                       struct recorder_stats *stats, struct err *e)
{
    struct err later;
    char text[64];
    int rc = machine_run(m, reason, e);
    bool with_digest = rc == 0 && !m->ended_between;

    if (recorder_end(recorder, &m->vm, *reason, with_digest, rc ? &later : e) < 0)
        rc = -1;
    recorder_stats(recorder, stats);
    command_unit_end_text(m->config.command, text, sizeof text);
    if (recorder_finish(recorder, *reason, text, rc ? &later : e) < 0)
        rc = -1;
    return rc;
}

/* Returns its status. */
static int end_of_command(const struct run_options *o, const struct machine *m,
                          enum end_reason reason, struct err *e)
{
    const int status = command_unit_end(&o->unit, m->config.command, reason, e);
    const bool drops = o->record && status == 0 && o->unit.keep_failed;

    if (drops && unlink(o->recording) < 0)
        text_print(stderr, "dittovm: cannot delete %s, whose command succeeded: %s\n", o->recording,
                   strerror(errno));
    if (o->record && !drops && !o->quiet && !o->json)
        text_print(stderr, "dittovm: %s; recorded in %s; replay it with: dittovm replay %s\n",
                   status < 0 ? "the command did not end"
                   : status   ? "the command failed"
                              : "the command succeeded",
                   o->recording, o->recording);
    return status;
}

int run_to_end(const struct run_options *o, struct machine *m, struct recorder *recorder,
               uint64_t start, struct err *e)
{
    struct host_control control = {.fd = -1};
    struct recorder_stats stats;
    enum end_reason reason;

    const struct stopper stopper = {stop_machine, m};
    stop_signals_call(&stopper);
    if (recorder)
        host_control_open(&control, o->recording);
    m->control = control_open(control.fd, o->recording);
    int rc = run_machine(m, recorder, &reason, &stats, e);
    control_close(m->control);
    m->control = NULL;
    host_control_close(&control);
    stop_signals_call(NULL);
    if (rc == 0)
        summarize(o, m, reason, &stats, (double)(host_now_ns() - start) / 1e9);
    return rc == 0 && m->config.command ? end_of_command(o, m, reason, e) : rc;
}
