#include "guest-tools/litmus/litmus.h"

/*
 * A count under a lock, which has every pass in the end.
 *
 *   kind    1: ticket lock, 2: test and set
 *   passes  of each CPU
 *   inside  passes of dawdle() under the lock
 *   work    the same between
 */
static struct {
    OWN_PAGE volatile unsigned next, serving, taken;
} lock;

static struct {
    OWN_PAGE volatile uint64_t count;
    volatile unsigned last; /* number + 1 */
    volatile unsigned holder;
    uint64_t handovers, intruders, order;
} guarded;

static unsigned kind, passes, inside, work_passes;

static void take(void)
{
    if (kind == 1) {
        const unsigned ticket = __atomic_fetch_add(&lock.next, 1, __ATOMIC_RELAXED);

        while (__atomic_load_n(&lock.serving, __ATOMIC_ACQUIRE) != ticket)
            pause();
        return;
    }
    while (__atomic_exchange_n(&lock.taken, 1, __ATOMIC_ACQUIRE))
        while (lock.taken)
            pause();
}

static void drop(void)
{
    if (kind == 1)
        __atomic_store_n(&lock.serving, lock.serving + 1, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&lock.taken, 0, __ATOMIC_RELEASE);
}

static void prepare(void)
{
    kind = (unsigned)parameter("kind", 1);
    passes = (unsigned)parameter("passes", 100);
    inside = (unsigned)parameter("inside", 1000);
    work_passes = (unsigned)parameter("work", 4000);
    if (kind != 1 && kind != 2)
        refuse("kind= is 1 or 2");
    litmus.name = kind == 1 ? "ticket-lock" : "test-and-set-lock";
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        take();
        guarded.intruders += guarded.holder != 0;
        guarded.holder = w->number + 1;
        guarded.count++;
        guarded.handovers += guarded.last != w->number + 1;
        guarded.last = w->number + 1;
        guarded.order = mix(guarded.order, w->number);
        dawdle(w, inside);
        guarded.intruders += guarded.holder != w->number + 1;
        guarded.holder = 0;
        drop();
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    count("counted", guarded.count);
    count("handovers", guarded.handovers);
    count("intruders", guarded.intruders);
    note(&worker[0], guarded.order);
    return guarded.count == (uint64_t)passes * workers && !guarded.intruders;
}

struct litmus litmus = {"locks", prepare, work, check};
