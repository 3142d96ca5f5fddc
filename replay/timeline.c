/* Checkpoints of a replay: see replay/timeline.h. */
#include "replay/timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/now.h"
#include "mmu/walk.h"
#include "vmm/points/fingerprint.h"

/* Between checkpoints that are made on the way: what seeking costs at most. */
#define SPACING_NS 400000000ull

void timeline_drop(struct timeline *t, struct checkpoint *c)
{
    assert(c != &t->first && c != t->here && c != t->target);
    /* How far it is to the next one is known if both parts are. */
    struct moment *later = c->moment.later;
    if (later) {
        struct checkpoint *next = checkpoint_of(later);
        next->steps = next->steps == STEPS_UNKNOWN || c->steps == STEPS_UNKNOWN
                          ? STEPS_UNKNOWN
                          : next->steps + c->steps;
    }
    page_history_drop(&t->history, &c->moment);
    free(c);
    t->checkpoints--;
}

static void free_checkpoint(struct checkpoint *c)
{
    snapshot_free(&c->snapshot);
    free(c);
}

/* ---- opening ---- */

static struct timeline *timeline_of(struct page_source *s)
{
    return (struct timeline *)((char *)s - offsetof(struct timeline, source));
}

/* image: of a snapshot; NULL: the initial one. */
static uint32_t chunk_in(const struct timeline *t, const struct snapshot *image, uint32_t page)
{
    uint32_t chunk = t->image[page];

    if (image)
        snapshot_find_page(image, page, &chunk);
    return chunk;
}

static int load(struct page_source *s, const void *image, const uint32_t *pages, size_t count,
                struct err *e)
{
    struct timeline *t = timeline_of(s);
    struct page_chunk *list = calloc(count, sizeof *list);

    if (!list)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (size_t i = 0; i < count; i++)
        list[i] = (struct page_chunk){pages[i], chunk_in(t, image, pages[i])};
    int rc = chunk_read_pages(t->player->chunks, list, count, s->memory->host, e);
    free(list);
    return rc;
}

/* Those of the pages of one image that are others in another one. */
static void set_differing(const struct timeline *t, const struct snapshot *of,
                          const struct snapshot *from, uint64_t *bitmap)
{
    for (size_t i = 0; i < of->run_count; i++) {
        const struct page_run *r = &of->runs[i];
        for (uint32_t n = 0; n < r->count; n++) {
            const uint32_t page = r->page + n;
            if (chunk_in(t, from, page) != r->chunk + (r->same ? 0 : n))
                bitmap_set(bitmap, page);
        }
    }
}

static void differing(struct page_source *s, const void *a, const void *b, uint64_t *bitmap)
{
    if (a)
        set_differing(timeline_of(s), a, b, bitmap);
    if (b)
        set_differing(timeline_of(s), b, a, bitmap);
}

static int collect(struct page_source *s, uint64_t *bitmap, struct err *e)
{
    return vm_collect_writes(&timeline_of(s)->player->vm, bitmap, e);
}

int timeline_open(struct timeline *t, struct player *p, uint64_t budget, struct err *e)
{
    *t = (struct timeline){
        .player = p,
        .source = {.memory = &p->vm.memory,
                   .load = load,
                   .differing = differing,
                   .collect = collect},
        .here = &t->first,
        .budget = budget,
        .spacing_ns = SPACING_NS,
        .ran_ns = host_now_ns(),
    };
    t->first.steps = STEPS_UNKNOWN;
    t->image = player_image(p, e);
    if (!t->image || snapshot_list_load(&t->snapshots, p->recording, e) < 0 ||
        player_mark(p, &t->first.mark, e) < 0 || vm_log_writes(&p->vm, true, e) < 0 ||
        page_history_open(&t->history, &t->source, &t->first.moment, e) < 0) {
        timeline_close(t);
        return -1;
    }
    p->pause = &t->interrupted;
    return 0;
}

void timeline_close(struct timeline *t)
{
    struct err ignored;

    if (!t->player)
        return;
    page_history_close(&t->history);
    for (struct moment *m = t->first.moment.later, *later; m; m = later) {
        later = m->later;
        free_checkpoint(checkpoint_of(m));
    }
    vm_log_writes(&t->player->vm, false, &ignored);
    t->player->pause = NULL;
    snapshot_list_free(&t->snapshots);
    free(t->image);
    *t = (struct timeline){0};
}

void timeline_interrupt(struct timeline *t)
{
    t->interrupted = true; /* first: run_piece() */
    player_interrupt(t->player);
}

/* ---- checkpoints ---- */

/*
 * The one to do without: between two that are close together for how long ago they are, so that
 * they are the denser, the nearer. NULL: there is none.
 */
static struct checkpoint *least_useful(struct timeline *t)
{
    struct checkpoint *best = NULL;
    double best_score = 0;

    for (struct moment *m = t->first.moment.later; m; m = m->later) {
        struct checkpoint *c = checkpoint_of(m);
        if (c == t->here || c == t->target || c->number || m->image)
            continue;
        const double before = (double)checkpoint_of(m->earlier)->at_ns;
        const double after = (double)(m->later ? checkpoint_of(m->later)->at_ns : c->at_ns);
        const double away =
            (double)(t->at_ns > c->at_ns ? t->at_ns - c->at_ns : c->at_ns - t->at_ns);
        const double score = (after - before + 1) / (away + 1e6);
        if (!best || score < best_score) {
            best = c;
            best_score = score;
        }
    }
    return best;
}

static void stay_in_budget(struct timeline *t)
{
    struct checkpoint *c;

    while (!t->keep_all &&
           page_history_extra(&t->history) + t->checkpoints * sizeof *c > t->budget &&
           (c = least_useful(t)))
        timeline_drop(t, c);
}

void timeline_keep_all(struct timeline *t, bool on)
{
    t->keep_all = on;
    stay_in_budget(t);
}

void timeline_add_time(struct timeline *t)
{
    const uint64_t now = host_now_ns();

    t->at_ns += now - t->ran_ns;
    t->ran_ns = now;
}

struct checkpoint *timeline_mark(struct timeline *t, uint64_t steps, struct err *e)
{
    struct player *p = t->player;
    struct checkpoint *c = calloc(1, sizeof *c);

    assert(!t->changed);
    if (!c) {
        err_set(e, STATUS_ERROR, "out of memory");
        return NULL;
    }
    timeline_add_time(t);
    if (player_mark(p, &c->mark, e) < 0 ||
        page_history_take(&t->history, &c->moment, &t->here->moment, e) < 0) {
        free(c);
        return NULL;
    }
    t->checkpoints++;
    c->steps = steps;
    c->at_ns = t->at_ns;
    c->repeating = p->stops.repeating;
    if (!c->mark.at_sync) {
        struct kvm_sregs sregs;
        struct translation to;
        vcpu_get_sregs(&p->cpu->vcpu, &sregs);
        fingerprint_take(&p->cpu->vcpu, p->cpu->vcpu.regs, &sregs, &c->here);
        fingerprint_probe_stack(&p->vm.memory, &c->here);
        if (walk(&p->vm.memory, sregs.cr3, linear_rip(p->cpu->vcpu.regs->rip, &sregs.cs), &to))
            c->here.gpa = to.gpa;
    }
    /* The next one is nearer now, by steps that are known only if these were steps. */
    if (c->moment.later) {
        struct checkpoint *next = checkpoint_of(c->moment.later);
        next->steps = next->steps == STEPS_UNKNOWN || steps == STEPS_UNKNOWN || next->steps < steps
                          ? STEPS_UNKNOWN
                          : next->steps - steps;
    }
    t->here = c;
    t->steps = 0;
    stay_in_budget(t);
    c->taken_ns = host_now_ns() - t->ran_ns;
    if (c->taken_ns > t->pause_max_ns)
        t->pause_max_ns = c->taken_ns;
    t->ran_ns += c->taken_ns;
    return c;
}

static int bring(struct timeline *t, struct checkpoint *c, struct err *e)
{
    /* An instruction that is half done writes its result before memory is restored. */
    if (player_abandon_exit(t->player, e) < 0 ||
        page_history_restore(&t->history, &c->moment, e) < 0 ||
        player_restore(t->player, &c->mark, e) < 0)
        return -1;
    t->here = c;
    t->steps = 0;
    t->player->stops.repeating = c->repeating;
    t->changed = t->player->changed = false;
    t->at_ns = c->at_ns;
    t->ran_ns = host_now_ns();
    return 0;
}

int timeline_restore(struct timeline *t, struct checkpoint *c, struct err *e)
{
    struct err ignored;

    if (t->here == c && t->steps == 0 && !t->changed)
        return 0;
    if (bring(t, c, e) == 0)
        return 0;
    /* A snapshot may hold what no CPU can be. Be where that is known again. */
    t->steps = STEPS_UNKNOWN;
    (void)bring(t, t->here, &ignored);
    return -1;
}

/* The snapshot as a checkpoint, the next one behind `before`. */
static int enter_snapshot(struct timeline *t, const struct snapshot_entry *entry,
                          struct checkpoint *before, struct err *e)
{
    const struct recording *r = t->player->recording;
    struct checkpoint *c = calloc(1, sizeof *c);

    if (!c)
        return err_set(e, STATUS_ERROR, "out of memory");
    if (snapshot_read(r, entry, t->player->vm.memory.size / PAGE_BYTES, &c->snapshot, e) < 0) {
        free(c);
        return -1;
    }
    if (c->snapshot.mark.cpu_count != t->player->cpu_count) {
        free_checkpoint(c);
        return err_set(e, STATUS_BAD_RECORDING,
                       "%s is damaged: its snapshot '%s' is of another machine", recording_path(r),
                       entry->name);
    }
    bytes_free(&c->snapshot.live);
    c->moment.image = &c->snapshot;
    page_history_enter(&t->history, &c->moment, &before->moment);
    t->checkpoints++;
    c->mark = c->snapshot.mark;
    c->steps = STEPS_UNKNOWN;
    c->at_ns = before->at_ns;
    if (c->moment.later)
        checkpoint_of(c->moment.later)->steps = STEPS_UNKNOWN;
    return 0;
}

struct checkpoint *timeline_last_before(const struct timeline *t, uint64_t ordinal)
{
    struct moment *m = t->history.last;

    while (checkpoint_of(m)->mark.ordinal > ordinal ||
           (checkpoint_of(m)->mark.ordinal == ordinal && !checkpoint_of(m)->mark.at_sync))
        m = m->earlier;
    return checkpoint_of(m);
}

int timeline_bring_in(struct timeline *t, uint64_t ordinal, struct err *e)
{
    const struct snapshot_entry *entry = snapshot_list_before(&t->snapshots, ordinal);

    if (!entry || timeline_last_before(t, ordinal)->mark.ordinal >= entry->ordinal)
        return 0;
    /* Where we stand may be told from a checkpoint that is no longer the last one before it. */
    if (t->steps && (t->steps == STEPS_UNKNOWN || !timeline_mark(t, t->steps, e)))
        return t->steps == STEPS_UNKNOWN ? 0 : -1;
    /* That may be behind the snapshot. */
    if (timeline_last_before(t, ordinal)->mark.ordinal >= entry->ordinal)
        return 0;
    return enter_snapshot(t, entry, timeline_last_before(t, ordinal), e);
}

struct checkpoint *timeline_checkpoint(struct timeline *t, struct err *e)
{
    struct checkpoint *c = NULL;

    if (t->changed)
        err_set(e, STATUS_ERROR, "this is not what was recorded: go back before the change first");
    else
        c = t->steps == 0 ? t->here : timeline_mark(t, t->steps, e);
    if (c && !c->number)
        c->number = ++t->numbered;
    return c;
}
