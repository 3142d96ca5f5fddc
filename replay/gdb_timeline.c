#include "replay/gdb_timeline.h"

#include <stdlib.h>

#include "mmu/walk.h"

/* A breakpoint of gdb's. */
struct gdb_stop_point {
    struct breakpoint breakpoint; /* or, by its kind, */
    struct watchpoint watchpoint;
    struct gdb_stop_point *next;
    enum gdb_breakpoint_kind kind;
};

static struct timeline *timeline_of(struct gdb_target *t)
{
    return gdb_timeline_of(t)->timeline;
}

static struct vcpu *vcpu_of(struct gdb_target *t)
{
    return &timeline_of(t)->player->cpu.vcpu;
}

/* ---- looking ---- */

static unsigned cpus(struct gdb_target *t)
{
    (void)t;
    return 1;
}

static int state(struct gdb_target *t, unsigned cpu, struct vcpu_state *out, struct err *e)
{
    (void)cpu;
    return player_finish_exit(timeline_of(t)->player, e) < 0 ? -1
                                                             : vcpu_state_get(vcpu_of(t), out, e);
}

static size_t read_virtual(struct gdb_target *t, unsigned cpu, uint64_t va, void *data, size_t len)
{
    struct kvm_sregs sregs;

    (void)cpu;
    vcpu_get_sregs(vcpu_of(t), &sregs);
    return walk_read(&vcpu_of(t)->vm->memory, sregs.cr3, va, data, len);
}

static size_t read_physical(struct gdb_target *t, uint64_t gpa, void *data, size_t len)
{
    const struct guest_memory *m = &vcpu_of(t)->vm->memory;
    size_t done = 0;

    for (; done < len; done++) {
        const uint8_t *at = guest_memory_at(m, gpa + done, 1);
        if (!at)
            break;
        ((uint8_t *)data)[done] = *at;
    }
    return done;
}

/* ---- breakpoints ---- */

static bool is_watch(enum gdb_breakpoint_kind kind)
{
    return kind != GDB_SOFTWARE && kind != GDB_HARDWARE;
}

static int put_in_place(struct gdb_timeline *g, struct gdb_stop_point *p, struct err *e)
{
    struct breakpoints *set = &g->timeline->player->cpu.stops;

    if (!is_watch(p->kind))
        return breakpoints_add(set, &p->breakpoint, e);
    if (p->kind != GDB_WATCH_WRITE)
        return err_set(e, STATUS_ERROR, "reads cannot be watched, only what changes memory");
    return breakpoints_watch(set, &p->watchpoint, e);
}

static int insert(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va, unsigned len,
                  struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);
    struct gdb_stop_point *p = calloc(1, sizeof *p);

    if (!p)
        return err_set(e, STATUS_ERROR, "out of memory");
    p->kind = kind;
    /* Linux, as nearly everybody, has its kernel in the upper half. */
    p->breakpoint = (struct breakpoint){.va = va, .cpl = va >> 63 ? 0 : 3, .patient = true};
    p->watchpoint = (struct watchpoint){.va = va, .len = len};
    if (put_in_place(g, p, e) < 0) {
        free(p);
        return -1;
    }
    p->next = g->points;
    g->points = p;
    return 0;
}

static void take_away(struct gdb_timeline *g, struct gdb_stop_point **at)
{
    struct breakpoints *set = &g->timeline->player->cpu.stops;
    struct gdb_stop_point *p = *at;

    *at = p->next;
    if (is_watch(p->kind))
        breakpoints_unwatch(set, &p->watchpoint);
    else
        breakpoints_remove(set, &p->breakpoint);
    free(p);
}

static int remove_point(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va,
                        unsigned len, struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);

    for (struct gdb_stop_point **at = &g->points; *at; at = &(*at)->next) {
        const struct gdb_stop_point *p = *at;
        if (p->kind != kind || p->breakpoint.va != va ||
            (is_watch(kind) && p->watchpoint.len != len))
            continue;
        take_away(g, at);
        return 0;
    }
    return err_set(e, STATUS_ERROR, "there is no such breakpoint");
}

/* ---- running ---- */

static int resume(struct gdb_target *t, unsigned cpu, enum gdb_resume how, struct gdb_stop *stop,
                  struct err *e)
{
    static enum timeline_stop (*const run[])(struct timeline *, struct err *) = {
        [GDB_STEP] = timeline_step,
        [GDB_CONTINUE] = timeline_continue,
        [GDB_REVERSE_STEP] = timeline_reverse_step,
        [GDB_REVERSE_CONTINUE] = timeline_reverse_continue,
    };
    struct gdb_timeline *g = gdb_timeline_of(t);

    *stop = (struct gdb_stop){.cpu = cpu};
    switch (run[how](g->timeline, e)) {
    case TIMELINE_THERE:
        stop->reason = GDB_STOP_STEP;
        return 0;
    case TIMELINE_BREAKPOINT:
        stop->reason = GDB_STOP_BREAKPOINT;
        for (const struct gdb_stop_point *p = g->points; p; p = p->next) {
            if (!is_watch(p->kind) ? p->breakpoint.hit : p->watchpoint.hit)
                stop->watch_kind = p->kind;
            if (!is_watch(p->kind) || !p->watchpoint.hit)
                continue;
            stop->reason = GDB_STOP_WATCH;
            stop->watch_va = p->watchpoint.va;
            break;
        }
        return 0;
    case TIMELINE_INTERRUPTED:
        stop->reason = GDB_STOP_INTERRUPTED;
        return 0;
    case TIMELINE_BEGIN:
        stop->reason = GDB_STOP_LOG_BEGIN;
        return 0;
    case TIMELINE_END:
        stop->reason = GDB_STOP_LOG_END;
        return 0;
    case TIMELINE_DIVERGED:
        stop->reason = GDB_STOP_DIVERGED;
        return 0;
    case TIMELINE_FAILED:
        break;
    }
    /* Be somewhere that is known, if that can be had. */
    struct err again;
    g->timeline->steps = STEPS_UNKNOWN;
    timeline_restore(g->timeline, g->timeline->here, &again);
    return -1;
}

static void interrupt(struct gdb_target *t)
{
    timeline_interrupt(timeline_of(t));
}

static const struct gdb_target_ops ops = {
    .cpus = cpus,
    .state = state,
    .read = read_virtual,
    .read_physical = read_physical,
    .insert = insert,
    .remove = remove_point,
    .resume = resume,
    .interrupt = interrupt,
    .monitor = gdb_timeline_monitor,
};

void gdb_timeline_init(struct gdb_timeline *g, struct timeline *t)
{
    *g = (struct gdb_timeline){.target = {.ops = &ops}, .timeline = t};
}

void gdb_timeline_close(struct gdb_timeline *g)
{
    while (g->points)
        take_away(g, &g->points);
}
