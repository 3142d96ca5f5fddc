#include "guest-tools/litmus/litmus.h"

/*
 * TwoStage (IBM Concurrency Testing Repository): two-stage access. A writer puts a new version into
 * two tables, each inside its own monitor; who reads in between finds the second behind the first.
 *
 *   passes  of each CPU; the first one writes, the others read
 *   window  passes of dawdle() between the writer's two stages
 *   work    the same between passes
 */
static struct table {
    struct monitor monitor;
    OWN_PAGE volatile uint64_t version;
} table[2];

static unsigned passes, window, work_passes;

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 150);
    window = (unsigned)parameter("window", 1500);
    work_passes = (unsigned)parameter("work", 20000);
}

static void put_version(struct worker *w, struct table *t, uint64_t version)
{
    monitor_enter(w, &t->monitor);
    t->version = version;
    monitor_exit(w, &t->monitor);
}

static uint64_t get_version(struct worker *w, struct table *t)
{
    monitor_enter(w, &t->monitor);
    const uint64_t version = t->version;
    monitor_exit(w, &t->monitor);
    return version;
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        dawdle(w, work_passes);
        if (w->number == 0) {
            put_version(w, &table[0], i + 1);
            dawdle(w, window); /* the bug: this is seen */
            put_version(w, &table[1], i + 1);
            continue;
        }
        const uint64_t first = get_version(w, &table[0]), second = get_version(w, &table[1]);
        w->count[0] += second < first;
        note(w, first);
    }
}

static bool check(void)
{
    count("half_written", sum(0));
    return sum(0) == 0;
}

struct litmus litmus = {"two-stage", prepare, work, check};
