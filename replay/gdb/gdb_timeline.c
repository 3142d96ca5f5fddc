#include "replay/gdb/gdb_timeline.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mmu/walk.h"
#include "replay/divergence.h"
#include "vmm/points/watchpoint.h"

#define WAKE_SIGNAL SIGUSR1

/* A breakpoint of gdb's. */
struct gdb_stop_point {
    struct breakpoint breakpoint; /* or, by its kind, */
    unsigned len, pieces;         /* of what is watched: */
    struct watchpoint *piece;     /* one for each page; owned */
    struct gdb_stop_point *next;
    enum gdb_breakpoint_kind kind;
};

static struct timeline *timeline_of(struct gdb_target *t)
{
    return gdb_timeline_of(t)->timeline;
}

static struct vcpu *vcpu_of(struct gdb_target *t)
{
    return &timeline_of(t)->player->cpu->vcpu;
}

/* ---- looking ---- */

static unsigned cpus(struct gdb_target *t)
{
    return timeline_of(t)->player->cpu_count;
}

static int state(struct gdb_target *t, unsigned cpu, struct vcpu_state *out, struct err *e)
{
    struct player *p = timeline_of(t)->player;

    /* Those that do not run now have no exit to be finished. */
    return player_finish_exit(p, e) < 0 ? -1 : vcpu_state_get(&p->cpus[cpu].vcpu, out, e);
}

static size_t read_virtual(struct gdb_target *t, unsigned cpu, uint64_t va, void *data, size_t len)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(&timeline_of(t)->player->cpus[cpu].vcpu, &sregs);
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

/* ---- changing ---- */

static int change(struct gdb_target *t, struct err *e)
{
    if (!gdb_timeline_of(t)->may_change)
        return err_set(e, STATUS_ERROR,
                       "a replay is what was recorded: registers and memory cannot be changed "
                       "(replay --gdb --diverge shows what would come of it)");
    return timeline_change(timeline_of(t), e);
}

static int set_state(struct gdb_target *t, unsigned cpu, const struct vcpu_state *to, struct err *e)
{
    struct player *p = timeline_of(t)->player;
    struct vcpu *vcpu = &p->cpus[cpu].vcpu;

    if (change(t, e) < 0 || player_finish_exit(p, e) < 0 || vcpu_state_set(vcpu, to, e) < 0)
        return -1;
    p->stops.repeating = false;
    return vcpu_complete(vcpu, e); /* for what KVM says in kvm_run about interrupts */
}

/* All of it, or nothing. cr3: NULL for physical addresses. */
static int write_memory(struct gdb_target *t, const uint64_t *cr3, uint64_t va, const uint8_t *data,
                        size_t len, struct err *e)
{
    struct timeline *timeline = timeline_of(t);
    const struct guest_memory *m = &timeline->player->vm.memory;

    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t done = 0, n; done < len; done += n) {
            struct translation to = {.gpa = va + done};
            n = PAGE_BYTES - ((va + done) & (PAGE_BYTES - 1));
            n = n < len - done ? n : len - done;
            void *at = !cr3 || walk(m, *cr3, va + done, &to) ? guest_memory_at(m, to.gpa, n) : NULL;
            if (!at)
                return err_set(e, STATUS_ERROR, "there is no memory at %#llx",
                               (unsigned long long)(va + done));
            if (pass == 1) {
                guest_memory_mark(m, at, n);
                memcpy(at, data + done, n);
            }
        }
        if (pass == 0 && change(t, e) < 0)
            return -1;
    }
    watchpoints_see(&timeline->player->stops);
    return 0;
}

static int write_virtual(struct gdb_target *t, unsigned cpu, uint64_t va, const void *data,
                         size_t len, struct err *e)
{
    struct player *p = timeline_of(t)->player;
    struct kvm_sregs sregs;
    uint64_t cr3;

    /* What an exit is still to write comes first. */
    if (player_finish_exit(p, e) < 0)
        return -1;
    vcpu_get_sregs(&p->cpus[cpu].vcpu, &sregs);
    cr3 = sregs.cr3;
    return write_memory(t, &cr3, va, data, len, e);
}

static int write_physical(struct gdb_target *t, uint64_t gpa, const void *data, size_t len,
                          struct err *e)
{
    if (player_finish_exit(timeline_of(t)->player, e) < 0)
        return -1;
    return write_memory(t, NULL, gpa, data, len, e);
}

/* ---- breakpoints ---- */

static bool is_watch(enum gdb_breakpoint_kind kind)
{
    return kind != GDB_SOFTWARE && kind != GDB_HARDWARE;
}

static bool is_hit(const struct gdb_stop_point *p)
{
    for (unsigned i = 0; i < p->pieces; i++)
        if (p->piece[i].hit)
            return true;
    return p->breakpoint.hit;
}

static void free_point(struct gdb_stop_point *p)
{
    free(p->piece);
    free(p);
}

/* Page by page. */
static int watch(struct breakpoints *set, struct gdb_stop_point *p, struct err *e)
{
    const uint64_t va = p->breakpoint.va, page = va & ~(uint64_t)(PAGE_BYTES - 1);
    const unsigned pages = (unsigned)((va + p->len - 1 - page) / PAGE_BYTES + 1);

    p->piece = calloc(pages, sizeof *p->piece);
    if (!p->piece)
        return err_set(e, STATUS_ERROR, "out of memory");
    for (uint64_t at = va; p->pieces < pages; p->pieces++) {
        const uint64_t in_page = PAGE_BYTES - (at & (PAGE_BYTES - 1)), left = va + p->len - at;
        struct watchpoint *w = &p->piece[p->pieces];
        *w = (struct watchpoint){.va = at, .len = (unsigned)(left < in_page ? left : in_page)};
        if (breakpoints_watch(set, w, e) < 0)
            break;
        at += w->len;
    }
    if (p->pieces == pages)
        return 0;
    while (p->pieces)
        breakpoints_unwatch(set, &p->piece[--p->pieces]);
    return -1;
}

static int put_in_place(struct gdb_timeline *g, struct gdb_stop_point *p, struct err *e)
{
    struct breakpoints *set = &g->timeline->player->stops;

    if (!is_watch(p->kind))
        return breakpoints_add(set, &p->breakpoint, e);
    if (p->kind != GDB_WATCH_WRITE)
        return err_set(e, STATUS_ERROR, "reads cannot be watched, only what changes memory");
    return watch(set, p, e);
}

static int insert(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va, unsigned len,
                  struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);
    struct gdb_stop_point *p = calloc(1, sizeof *p);

    if (!p)
        return err_set(e, STATUS_ERROR, "out of memory");
    p->kind = kind;
    /* Linux, as nearly everybody, has its kernel in the upper half; what it maps in the lower one
     * before there are programs is not where they will lie. Another kernel may be in the lower half
     * itself, from the start. */
    const bool linux = recording_stream_length(g->timeline->player->recording, STREAM_SYMBOLS);
    p->breakpoint = (struct breakpoint){.va = va, .cpl = 3, .patient = true};
    if (va >> 63 || !linux)
        p->breakpoint.cpl = 0;
    p->breakpoint.any_cpl = !linux;
    p->len = len;
    if (put_in_place(g, p, e) < 0) {
        free_point(p);
        return -1;
    }
    p->next = g->points;
    g->points = p;
    return 0;
}

static void take_away(struct gdb_timeline *g, struct gdb_stop_point **at)
{
    struct breakpoints *set = &g->timeline->player->stops;
    struct gdb_stop_point *p = *at;

    *at = p->next;
    if (!is_watch(p->kind))
        breakpoints_remove(set, &p->breakpoint);
    while (p->pieces)
        breakpoints_unwatch(set, &p->piece[--p->pieces]);
    free_point(p);
}

static int remove_point(struct gdb_target *t, enum gdb_breakpoint_kind kind, uint64_t va,
                        unsigned len, struct err *e)
{
    struct gdb_timeline *g = gdb_timeline_of(t);

    for (struct gdb_stop_point **at = &g->points; *at; at = &(*at)->next) {
        const struct gdb_stop_point *p = *at;
        if (p->kind != kind || p->breakpoint.va != va || (is_watch(kind) && p->len != len))
            continue;
        take_away(g, at);
        return 0;
    }
    return err_set(e, STATUS_ERROR, "there is no such breakpoint");
}

/* ---- running ---- */

/* What a change has come to. */
static void note_divergence(const struct player *p, struct gdb_stop *stop)
{
    const struct sync_point *got = &p->divergence.got, *expected = &p->divergence.expected;
    char is[80], was[80], how[120] = "what it puts out is something else";
    unsigned reg = 0;

    sync_point_format(got, is, sizeof is);
    sync_point_format(expected, was, sizeof was);
    while (reg < REG_COUNT && got->regs[reg] == expected->regs[reg])
        reg++;
    if (got->regs[REGISTER_RIP] != expected->regs[REGISTER_RIP] || strcmp(is, was) != 0)
        snprintf(how, sizeof how, "recorded: %s at rip %#llx", was,
                 (unsigned long long)expected->regs[REGISTER_RIP]);
    else if (reg < REG_COUNT)
        snprintf(how, sizeof how, "%s is %#llx, recorded: %#llx", reg_names[reg],
                 (unsigned long long)got->regs[reg], (unsigned long long)expected->regs[reg]);
    snprintf(stop->note, sizeof stop->note,
             "what was changed leads away from the recording at sync point %llu: %s at rip %#llx; "
             "%s. From here it can only go back",
             (unsigned long long)p->divergence.ordinal, is,
             (unsigned long long)got->regs[REGISTER_RIP], how);
}

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
    const bool changed = g->timeline->changed;

    (void)cpu; /* the recording says who runs */
    *stop = (struct gdb_stop){0};
    if (changed && (how == GDB_REVERSE_STEP || how == GDB_REVERSE_CONTINUE))
        snprintf(stop->note, sizeof stop->note,
                 "what was changed is undone; this is what was recorded");
    const enum timeline_stop reason = run[how](g->timeline, e);
    stop->cpu = vcpu_of(t)->index;
    switch (reason) {
    case TIMELINE_THERE:
        stop->reason = GDB_STOP_STEP;
        return 0;
    case TIMELINE_BREAKPOINT:
        stop->reason = GDB_STOP_BREAKPOINT;
        for (const struct gdb_stop_point *p = g->points; p; p = p->next) {
            if (!is_hit(p))
                continue;
            stop->watch_kind = p->kind;
            if (!is_watch(p->kind))
                continue;
            stop->reason = GDB_STOP_WATCH;
            stop->watch_va = p->breakpoint.va;
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
        stop->reason = changed ? GDB_STOP_STEP : GDB_STOP_DIVERGED;
        if (changed)
            note_divergence(g->timeline->player, stop);
        return 0;
    case TIMELINE_UNDONE:
        stop->reason = GDB_STOP_STEP;
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

static int restart(struct gdb_target *t, const char *argument, unsigned *cpu, struct err *e)
{
    struct bytes text = {0};
    char command[64];

    snprintf(command, sizeof command, "seek %s", argument ? argument : "0");
    int rc = gdb_timeline_monitor(t, command, &text, e);
    bytes_free(&text);
    *cpu = vcpu_of(t)->index;
    return rc;
}

static void interrupt(struct gdb_target *t)
{
    timeline_interrupt(timeline_of(t));
    pthread_kill(gdb_timeline_of(t)->runner, WAKE_SIGNAL);
}

static const struct gdb_target_ops ops = {
    .cpus = cpus,
    .state = state,
    .read = read_virtual,
    .read_physical = read_physical,
    .set_state = set_state,
    .write = write_virtual,
    .write_physical = write_physical,
    .insert = insert,
    .remove = remove_point,
    .resume = resume,
    .restart = restart,
    .interrupt = interrupt,
    .monitor = gdb_timeline_monitor,
};

static void ignore(int signal)
{
    (void)signal;
}

void gdb_timeline_init(struct gdb_timeline *g, struct timeline *t)
{
    const struct sigaction nothing = {.sa_handler = ignore};

    sigaction(WAKE_SIGNAL, &nothing, NULL);
    *g = (struct gdb_timeline){.target = {.ops = &ops}, .timeline = t, .runner = pthread_self()};
}

void gdb_timeline_close(struct gdb_timeline *g)
{
    while (g->points)
        take_away(g, &g->points);
}
