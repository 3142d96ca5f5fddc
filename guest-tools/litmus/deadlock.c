#include "guest-tools/litmus/litmus.h"

/*
 * Two locks, which CPUs with even numbers take in one order and those with odd numbers in the
 * other.
 *
 *   passes  of each CPU
 *   window  passes of dawdle() between the first and the second
 *   work    the same between passes
 */
static struct monitor lock[2];
static unsigned passes, window, work_passes;

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 60);
    window = (unsigned)parameter("window", 2000);
    work_passes = (unsigned)parameter("work", 60000);
}

static void work(struct worker *w)
{
    struct monitor *const first = &lock[w->number % 2], *const second = &lock[1 - w->number % 2];

    for (unsigned i = 0; i < passes; i++) {
        monitor_enter(w, first);
        dawdle(w, window);
        monitor_enter(w, second);
        w->count[0]++;
        monitor_exit(w, second);
        monitor_exit(w, first);
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    count("passes", sum(0));
    return sum(0) == (uint64_t)passes * workers;
}

struct litmus litmus = {"deadlock", prepare, work, check};
