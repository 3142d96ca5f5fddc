#include "replay/live/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "recording/doubts.h"
#include "recording/places/snapshot_list.h"
#include "recording/stream_reader.h"
#include "replay/divergence.h"
#include "replay/live/recorded_machine.h"
#include "replay/live/shadow.h"
#include "vmm/machine/kernel_hooks.h"

/* ---- what there is to go on with ---- */

static bool same_file(const char *a, const char *b)
{
    struct stat first, second;

    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static int check_output(const struct live_request *r, struct err *e)
{
    if (r->output && same_file(r->output, r->from.path))
        return err_set(e, STATUS_USAGE,
                       "%s cannot be overwritten while the machine goes on from it; give another "
                       "name with -o",
                       r->from.path);
    if (r->output && !r->overwrite && access(r->output, F_OK) == 0)
        return err_set(e, STATUS_ERROR, "%s exists; give --force, or another name with -o",
                       r->output);
    return 0;
}

/* Why a machine that ended so has nothing to go on with, or NULL. */
static const char *finished(enum end_reason reason)
{
    switch (reason) {
    case END_POWEROFF:
    case END_RESET:
    case END_TRIPLE_FAULT:
    case END_HALTED:
        return end_reason_text(reason);
    default:
        return NULL;
    }
}

static int refuse_end(const struct live *l, enum end_reason reason, struct err *e)
{
    return err_set(e, STATUS_ERROR,
                   "there is nothing to go on with at the end of %s: the machine ended there (%s); "
                   "give a place before, %s@POINT (see 'dittovm dump')",
                   l->request->from.path, end_reason_text(reason), l->request->from.path);
}

/* The place, and what to begin at on the way there. */
static int find_point(struct live *l, struct err *e)
{
    const struct end_record *end = recording_end(l->recording);
    const struct snapshot_entry *before;
    struct snapshot_list list;
    int rc = 0;

    if (recording_last_sync(l->recording, &l->point, e) < 0 ||
        snapshot_list_load(&list, l->recording, e) < 0)
        return -1;
    if (l->request->from.name[0])
        rc = snapshot_list_find_point(&list, l->recording, l->request->from.name, l->point,
                                      &l->point, e);
    else if (end && finished((enum end_reason)end->reason_code))
        rc = refuse_end(l, (enum end_reason)end->reason_code, e);
    before = l->request->check_disk ? NULL : snapshot_list_live_before(&list, l->point);
    if (before)
        l->begin = *before;
    snapshot_list_free(&list);
    return rc;
}

/* Local APICs, IOAPIC and the schedule do not go live yet. */
static int check_cpus(const struct live *l, struct err *e)
{
    if (meta_cpus(l->meta) == 1)
        return 0;
    return err_set(e, STATUS_ERROR,
                   "the machine in %s has several CPUs; only one with a single CPU can go on live",
                   l->request->from.path);
}

static int open_disks(struct live *l, struct err *e)
{
    const struct live_request *r = l->request;

    return recorded_disks_open(l->meta, r->disks, r->disk_count, r->from.path, &l->disks, &l->doubt,
                               e);
}

int live_open(struct live *l, const struct live_request *request, struct err *e)
{
    *l = (struct live){.request = request, .state.memory.fd = -1};
    if (check_output(request, e) < 0)
        return -1;
    l->recording = recording_open(request->from.path, e);
    if (!l->recording)
        return -1;
    l->meta = meta_load(l->recording, e);
    if (!l->meta || check_cpus(l, e) < 0 || find_point(l, e) < 0 || open_disks(l, e) < 0) {
        live_close(l);
        return -1;
    }
    return 0;
}

void live_close(struct live *l)
{
    machine_state_free(&l->state);
    disk_set_close(&l->disks);
    json_decref(l->meta);
    if (l->recording)
        recording_close(l->recording);
    *l = (struct live){.state.memory.fd = -1};
}

/* ---- the way there ---- */

void live_interrupt(struct live *l)
{
    l->stopped = true;
    if (l->playing)
        player_interrupt(l->playing);
}

static int check_arrival(const struct live *l, const struct player *p, const struct shadow *s,
                         struct err *e)
{
    if (p->status == PLAYER_DIVERGED) {
        divergence_report(p, stderr);
        return err_set(e, STATUS_DIVERGED, "the replay diverged before sync point %llu",
                       (unsigned long long)l->point);
    }
    if (p->ordinal < l->point || !p->at_sync)
        return err_set(e, STATUS_ERROR, "interrupted before sync point %llu was reached",
                       (unsigned long long)l->point);
    if (s->end)
        return refuse_end(l, s->end, e);
    if (shadow_check_kernel(s, e) < 0)
        return -1;
    if (p->cpu->last_sync.kind == EXIT_SHUTDOWN)
        return refuse_end(l, END_TRIPLE_FAULT, e);
    return 0;
}

/* Before its first sync point a machine that went live itself is as its recorder found it: with its
 * hook, which is the first event, and perhaps in a HLT. */
static int take_beginning(const json_t *meta, struct machine_state *state, struct player *p,
                          struct err *e)
{
    const struct event *first;

    state->halted = meta_begins_halted(meta);
    if (player_next(p, &first, e) < 0)
        return -1;
    return first && first->kind == EVENT_HOOK ? player_take(p, e) : 0;
}

/* The replay's machine as it is now; memory is taken from it. */
static int take_state(const json_t *meta, struct machine_state *state, struct player *p,
                      struct shadow *s, struct err *e)
{
    struct player_mark mark;

    if (!p->ordinal && take_beginning(meta, state, p, e) < 0)
        return -1;
    if (player_mark(p, &mark, e) < 0)
        return -1;
    state->cpu = mark.cpus[0].state;
    state->pending = mark.cpus[0].pending;
    state->hook = mark.hook;
    if (mark.ordinal)
        state->halted = mark.cpus[0].last_sync.kind == EXIT_HLT;
    shadow_save(s, &state->devices);
    state->memory = p->vm.memory;
    p->vm.memory = (struct guest_memory){.fd = -1};
    return 0;
}

/* Devices that follow p, from the last snapshot that has their state, or else from the beginning.
 */
static int begin(struct live *l, struct player *p, struct shadow *s, struct err *e)
{
    const struct snapshot_entry *from = l->begin.live ? &l->begin : NULL;

    if (from && player_enter(p, from, e) < 0)
        return -1;
    struct kernel_code code;
    recorded_kernel_code(l->meta, &code);
    return shadow_open(s, p, &l->disks, code.kexec_hook, from, e) < 0 ? -1 : shadow_go_on(s, e);
}

static int play(struct live *l, struct player *p, struct err *e)
{
    struct shadow *s = malloc(sizeof *s); /* a disk's buffer is in it */
    struct console *console = console_open(-1, STDOUT_FILENO, true, e);
    int rc = s && console ? 0 : err_set(e, STATUS_ERROR, "out of memory");

    if (rc == 0)
        rc = begin(l, p, s, e);
    if (rc == 0) {
        p->console = console_put;
        p->console_opaque = console;
        l->playing = p;
        if (l->stopped) /* while it was made ready */
            player_interrupt(p);
        rc = player_run_to_place(p, l->point, e);
        l->playing = NULL;
        if (rc == 0)
            rc = check_arrival(l, p, s, e);
        if (rc == 0) {
            l->point = p->ordinal;
            l->arrived = p->cpu->last_sync;
            rc = take_state(l->meta, &l->state, p, s, e);
        }
        shadow_close(s);
    }
    console_close(console);
    free(s);
    return rc;
}

int live_play(struct live *l, struct err *e)
{
    struct player p;

    if (player_open(&p, l->recording, NULL, e) < 0)
        return -1;
    int rc = play(l, &p, e);
    player_close(&p);
    return rc;
}

/* ---- the machine ---- */

int live_machine(struct live *l, const struct machine_config *how, struct machine *m,
                 struct console *console, struct err *e)
{
    struct machine_config config = *how;

    config.cpus = 1;
    config.owns_tsd = meta_owns_tsd(l->meta);
    config.disks = &l->disks;
    if (machine_create_from(m, &config, console, &l->state, e) < 0)
        return -1;
    recorded_trust_code(l->meta, m);
    recorded_kernel_code(l->meta, &m->kernel_code);
    kernel_hook_go_on(m, &m->cpu->vcpu, &l->arrived);
    return 0;
}

static int copy_symbols(const struct live *l, struct recorder *recorder, struct err *e)
{
    struct stream_reader *in = stream_open(l->recording, STREAM_SYMBOLS, e);
    size_t len;

    if (!in)
        return -1;
    do {
        const uint8_t *data = stream_peek(in, STREAM_MAX_PEEK, &len);
        recorder_symbols(recorder, &(struct bytes){.data = (uint8_t *)data, .len = len});
        stream_skip(in, len);
    } while (len);
    int rc = stream_error(in, e);
    stream_close(in);
    return rc;
}

/* What was left to chance on the way there is part of what is recorded now. */
struct doubts_before {
    uint64_t point;
    struct recorder *recorder;
    const char *cpu; /* of this CPU, which has been said; may be NULL */
};

static void keep_doubt(void *opaque, const struct doubt *doubt)
{
    const struct doubts_before *before = opaque;

    if (doubt->ordinal <= before->point && (!before->cpu || strcmp(doubt->text, before->cpu) != 0))
        recorder_doubt(before->recorder, doubt->text);
}

int live_record(const struct live *l, struct machine *m, struct recorder *recorder, struct err *e)
{
    struct doubts_before before = {l->point, recorder, m->config.cpu_doubt};

    return copy_symbols(l, recorder, e) < 0 || machine_record(m, recorder, e) < 0
               ? -1
               : doubts_read(l->recording, keep_doubt, &before, e);
}
