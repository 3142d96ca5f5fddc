/*
 * Monitors, and when nobody can go on any more. One lock guards all of them, so that whoever is
 * about to wait sees what all others wait for: the last one finds the deadlock, at once and for
 * sure.
 */
#include "guest-tools/litmus/litmus.h"

static struct {
    OWN_PAGE volatile unsigned taken;
} guard;

static struct {
    OWN_PAGE uint64_t order;
    struct {
        struct monitor *wants; /* to enter */
        volatile bool asleep;  /* until it is notified */
        bool left;
    } of[CPUS_MAX];
} state;

static struct {
    OWN_PAGE volatile unsigned workers;
} stuck;

static void guard_take(void)
{
    while (__atomic_exchange_n(&guard.taken, 1, __ATOMIC_ACQUIRE))
        while (guard.taken)
            pause();
}

static void guard_drop(void)
{
    __atomic_store_n(&guard.taken, 0, __ATOMIC_RELEASE);
}

/* Whether it runs, or will once those have run that can; nobody who has left does. */
static bool can_go_on(unsigned number)
{
    for (unsigned hops = 0; hops < workers; hops++) {
        if (state.of[number].asleep || state.of[number].left)
            return false;
        const struct monitor *m = state.of[number].wants;
        if (!m || !m->owner)
            return true;
        number = m->owner - 1;
    }
    return false; /* around in a circle */
}

/* The caller may have been the last one who could go on. */
static void look_around(void)
{
    unsigned waiting = 0;

    for (unsigned n = 0; n < workers; n++) {
        if (can_go_on(n))
            return;
        waiting += !state.of[n].left;
    }
    stuck.workers = waiting;
}

static void leave_if_stuck(void)
{
    if (stuck.workers)
        worker_leaves();
}

void monitor_enter(struct worker *w, struct monitor *m)
{
    for (;;) {
        guard_take();
        if (!m->owner)
            break;
        state.of[w->number].wants = m;
        look_around();
        guard_drop();
        while (m->owner && !stuck.workers)
            pause();
        leave_if_stuck();
    }
    m->owner = w->number + 1;
    state.of[w->number].wants = NULL;
    state.order = mix(state.order, w->number + 1);
    guard_drop();
}

void monitor_exit(struct worker *w, struct monitor *m)
{
    (void)w;
    guard_take();
    m->owner = 0;
    guard_drop();
}

void monitor_wait(struct worker *w, struct monitor *m)
{
    guard_take();
    m->queue[m->waiting++] = (unsigned char)w->number;
    state.of[w->number].asleep = true;
    m->owner = 0;
    look_around();
    guard_drop();
    while (state.of[w->number].asleep && !stuck.workers)
        pause();
    leave_if_stuck();
    monitor_enter(w, m);
}

void monitor_notify(struct worker *w, struct monitor *m)
{
    (void)w;
    guard_take();
    if (m->waiting) {
        state.of[m->queue[0]].asleep = false;
        m->waiting--;
        for (unsigned i = 0; i < m->waiting; i++)
            m->queue[i] = m->queue[i + 1];
    }
    guard_drop();
}

void monitor_notify_all(struct worker *w, struct monitor *m)
{
    while (m->waiting)
        monitor_notify(w, m);
}

void monitors_leave(struct worker *w)
{
    guard_take();
    state.of[w->number].left = true;
    look_around();
    guard_drop();
}

unsigned monitors_stuck(void)
{
    return stuck.workers;
}

uint64_t monitors_order(void)
{
    return state.order;
}
