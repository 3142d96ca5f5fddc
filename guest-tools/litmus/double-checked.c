#include "guest-tools/litmus/litmus.h"

/*
 * Double-checked locking (Shop of the IBM Concurrency Testing Repository): objects are made when
 * they are first wanted. Who sees one published does not enter the monitor, but an object may be
 * published before it is complete. x86 does not exchange the two stores; here it is written as a
 * compiler may make it.
 *
 *   objects  that all CPUs want, one after the other, at most 4096
 *   window   passes of dawdle() between publishing and completing
 *   work     the same between objects
 */
#define OBJECTS_MAX 4096

static struct monitor monitor;
static struct object {
    uint64_t a, b;
} object[OBJECTS_MAX] OWN_PAGE;
static struct {
    OWN_PAGE struct object *volatile of[OBJECTS_MAX];
} instance;

static unsigned objects, window, work_passes;

enum { UNFINISHED, MADE };

static void prepare(void)
{
    objects = (unsigned)parameter("objects", 200);
    window = (unsigned)parameter("window", 8000);
    work_passes = (unsigned)parameter("work", 40000);
    if (objects > OBJECTS_MAX)
        refuse("objects= is at most 4096");
}

static volatile struct object *get(struct worker *w, unsigned i)
{
    if (instance.of[i])
        return instance.of[i];
    monitor_enter(w, &monitor);
    if (!instance.of[i]) {
        volatile struct object *o = &object[i];
        instance.of[i] = &object[i]; /* the bug: too early */
        dawdle(w, window);
        o->a = i + 1;
        o->b = ~(uint64_t)(i + 1);
        w->count[MADE]++;
    }
    monitor_exit(w, &monitor);
    return instance.of[i];
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < objects; i++) {
        const volatile struct object *o = get(w, i);
        const uint64_t a = o->a, b = o->b;

        w->count[UNFINISHED] += a != i + 1 || b != ~a;
        note(w, a ^ w->count[MADE]);
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    count("made", sum(MADE));
    count("unfinished", sum(UNFINISHED));
    return sum(UNFINISHED) == 0;
}

struct litmus litmus = {"double-checked", prepare, work, check};
