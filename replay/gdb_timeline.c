#include "replay/gdb_timeline.h"

#include <stdlib.h>

#include "mmu/walk.h"

/* A breakpoint of gdb's. */
struct gdb_stop_point {
    struct breakpoint breakpoint;
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

static int insert(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va, unsigned len,
                  struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);
    struct gdb_stop_point *p = calloc(1, sizeof *p);

    (void)len;
    if (!p)
        return err_set(e, STATUS_ERROR, "out of memory");
    p->kind = kind;
    /* Linux, as nearly everybody, has its kernel in the upper half. */
    p->breakpoint = (struct breakpoint){.va = va, .cpl = va >> 63 ? 0 : 3, .patient = true};
    if (kind != GDB_SOFTWARE && kind != GDB_HARDWARE) {
        free(p);
        return err_set(e, STATUS_ERROR, "there are no watchpoints yet");
    }
    if (breakpoints_add(&g->timeline->player->cpu.stops, &p->breakpoint, e) < 0) {
        free(p);
        return -1;
    }
    p->next = g->points;
    g->points = p;
    return 0;
}

static void take_away(struct gdb_timeline *g, struct gdb_stop_point **at)
{
    struct gdb_stop_point *p = *at;

    *at = p->next;
    breakpoints_remove(&g->timeline->player->cpu.stops, &p->breakpoint);
    free(p);
}

static int remove_point(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va,
                        unsigned len, struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);

    (void)len;
    for (struct gdb_stop_point **at = &g->points; *at; at = &(*at)->next) {
        if ((*at)->kind != kind || (*at)->breakpoint.va != va)
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
        for (const struct gdb_stop_point *p = g->points; p; p = p->next)
            if (p->breakpoint.hit)
                stop->watch_kind = p->kind;
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
