#include "cli/following.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
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
    *f = (struct following){.request = f->request};
}

static void say_without(const struct err *why)
{
    fprintf(stderr,
            "dittovm: snapshots are without devices and disk, so that run --from replays to them "
            "from before: %s\n",
            why->text);
}

/* What devices need is there: the disk images, if the machine had some. */
static int prepare(struct following *f, const struct player *p, struct err *e)
{
    const struct following_request *r = f->request;
    json_t *description = meta_load(p->recording, e);

    if (!description)
        return -1;
    struct disk_doubt doubt;
    int rc = recorded_disks_open(description, r->disks, r->disk_count, r->recording, &f->disks,
                                 &doubt, e);
    if (rc == 0 && doubt.text[0])
        text_print(stderr, "dittovm: %s\n", doubt.text);
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

/* Nobody follows from here on. */
static int go_without(struct following *f, struct err *e)
{
    following_end(f);
    if (f->request->required)
        return -1;
    if (!f->request->quiet)
        say_without(e);
    return 0;
}

int following_begin(struct following *f, struct player *p, const struct following_request *request,
                    uint64_t at, struct err *e)
{
    struct snapshot_list list;

    f->request = request;
    if (p->cpu_count > 1 && !request->required)
        return playing_begin(p, "", at, e);
    if (prepare(f, p, e) < 0)
        return go_without(f, e) < 0 ? -1 : playing_begin(p, "", at, e);
    if (snapshot_list_load(&list, p->recording, e) < 0)
        return -1;
    const struct snapshot_entry *from = snapshot_list_live_before(&list, at);
    int rc = from ? player_enter(p, from, e) : 0;
    if (rc == 0 && shadow_open(f->shadow, p, &f->disks, f->code.kexec_hook, from, e) < 0)
        rc = go_without(f, e);
    snapshot_list_free(&list);
    return rc;
}

int following_play(struct following *f, struct player *p, uint64_t at, struct err *e)
{
    const bool progress = !f->request->quiet && isatty(STDERR_FILENO);
    int rc = 0;

    if (p->at_sync && p->ordinal >= at)
        return 0;
    if (f->shadow) {
        f->shadow->hold = at;
        rc = shadow_go_on(f->shadow, e);
    }
    if (rc == 0)
        rc = playing_run(p, at, progress, e);
    if (rc < 0 && f->shadow && f->shadow->differs && go_without(f, e) == 0)
        rc = playing_run(p, at, progress, e);
    if (rc == 0 && f->shadow && !f->request->disk_only && shadow_check_kernel(f->shadow, e) < 0)
        rc = go_without(f, e);
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
                   const char *name, struct snapshot_entry *made, struct err *e)
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
    int rc = snapshot_adder_put(a, p, name, f->shadow ? &live.ops : NULL, made, e);
    bytes_free(&devices);
    bytes_free(&access);
    return rc;
}

int following_name_disk(struct disk_wish disks[MAX_DISKS], unsigned *count, const char *image,
                        struct err *e)
{
    if (*count == MAX_DISKS)
        return err_set(e, STATUS_USAGE, "--disk: at most %u disks", MAX_DISKS);
    struct disk_wish *wish = &disks[*count];
    *wish = (struct disk_wish){0};
    if (snprintf(wish->path, sizeof wish->path, "%s", image) >= (int)sizeof wish->path)
        return err_set(e, STATUS_USAGE, "the name of the disk image is too long");
    ++*count;
    return 0;
}
