#include "cli/snapshot_following.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/playing.h"
#include "recorder/live_state.h"
#include "replay/live/recorded_machine.h"

void following_end(struct following *f)
{
    if (f->shadow)
        shadow_close(f->shadow);
    free(f->shadow);
    disk_map_destroy(f->map);
    disk_set_close(&f->disks);
    *f = (struct following){0};
}

static void say_without(const struct snapshot_options *o, const struct err *why)
{
    if (!o->quiet)
        fprintf(stderr,
                "dittovm: snapshots are without devices and disk, so that run --from replays to "
                "them from before: %s\n",
                why->text);
}

/* What devices need is there: the disk image, if the machine had one. */
static int prepare(struct following *f, const struct player *p, const struct snapshot_options *o,
                   struct err *e)
{
    json_t *description = meta_load(p->recording, e);
    struct disk_wish wish = {0};
    int rc = description ? 0 : -1;

    if (o->disk && snprintf(wish.path, sizeof wish.path, "%s", o->disk) >= (int)sizeof wish.path)
        rc = err_set(e, STATUS_USAGE, "the name of the disk image is too long");
    if (rc == 0)
        rc = recorded_disks_open(description, &wish, o->disk ? 1 : 0, o->place.path, &f->disks, e);

    if (description)
        recorded_kernel_code(description, &f->code);
    json_decref(description);
    if (rc < 0)
        return -1;
    f->map = disk_map_create(f->disks.whole, e);
    f->shadow = calloc(1, sizeof *f->shadow); /* a disk's buffer is in it */
    if (f->map && !f->shadow)
        err_set(e, STATUS_ERROR, "out of memory");
    return f->map && f->shadow ? 0 : -1;
}

/* Nobody follows from here on; that is an error only when the image was named. */
static int go_without(struct following *f, const struct snapshot_options *o, struct err *e)
{
    following_end(f);
    if (o->disk)
        return -1;
    say_without(o, e);
    return 0;
}

int following_begin(struct following *f, struct player *p, const struct snapshot_options *o,
                    struct err *e)
{
    struct snapshot_list list;

    if (p->cpu_count > 1 && o->disk)
        return err_set(e, STATUS_ERROR,
                       "snapshot --disk is for going live, which a machine with several CPUs, as "
                       "in %s, cannot; leave it out",
                       o->place.path);
    if (p->cpu_count > 1)
        return playing_begin(p, "", o->at, e);
    if (prepare(f, p, o, e) < 0)
        return go_without(f, o, e) < 0 ? -1 : playing_begin(p, "", o->at, e);
    if (snapshot_list_load(&list, p->recording, e) < 0)
        return -1;
    const struct snapshot_entry *from = snapshot_list_live_before(&list, o->at);
    int rc = from ? player_enter(p, from, e) : 0;
    if (rc == 0 && shadow_open(f->shadow, p, &f->disks, f->code.kexec_hook, from, e) < 0)
        rc = go_without(f, o, e);
    snapshot_list_free(&list);
    return rc;
}

int following_play(struct following *f, struct player *p, uint64_t at,
                   const struct snapshot_options *o, struct err *e)
{
    const bool progress = !o->quiet && isatty(STDERR_FILENO);
    int rc = 0;

    if (p->at_sync && p->ordinal >= at)
        return 0;
    if (f->shadow) {
        f->shadow->hold = at;
        rc = shadow_go_on(f->shadow, e);
    }
    if (rc == 0)
        rc = playing_run(p, at, progress, e);
    if (rc < 0 && f->shadow && f->shadow->differs && go_without(f, o, e) == 0)
        rc = playing_run(p, at, progress, e);
    if (rc == 0 && f->shadow && shadow_check_kernel(f->shadow, e) < 0)
        rc = go_without(f, o, e);
    return rc;
}

struct live_part {
    struct snapshot_live ops; /* its first member */
    struct live_state state;
};

static int take_live(const struct snapshot_live *live, struct chunk_store *chunks,
                     struct bytes *out, struct err *e)
{
    return live_state_take(&((const struct live_part *)live)->state, chunks, out, e);
}

int following_take(struct following *f, struct player *p, struct snapshot_adder *a,
                   const struct snapshot_options *o, struct snapshot_entry *made, struct err *e)
{
    struct bytes devices = {0}, access = {0};
    const struct live_part live = {
        .ops.take = take_live,
        .state = {.devices = &devices, .access = &access, .disk = f->map},
    };

    if (f->shadow) {
        shadow_save(f->shadow, &devices);
        shadow_save_access(f->shadow, &access);
    }
    int rc = snapshot_adder_put(a, p, o->name, f->shadow ? &live.ops : NULL, made, e);
    bytes_free(&devices);
    bytes_free(&access);
    return rc;
}
