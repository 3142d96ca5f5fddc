#include "guest-tools/litmus/litmus.h"

/*
 * Liveness (IBM Concurrency Testing Repository): lost notify, dormancy. A server takes one client
 * at a time; one who finds it busy goes to wait, but the server may be free, and have notified,
 * before he waits. Who comes after the last notify waits for ever.
 *
 *   passes  requests of each CPU
 *   serve   passes of dawdle() for a request
 *   window  the same between finding the server busy and waiting
 *   work    the same between requests
 */
static struct monitor monitor;
static struct {
    OWN_PAGE volatile unsigned busy;
} server;

static unsigned passes, serve, window, work_passes;

enum { SERVED, WAITED };

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 2);
    serve = (unsigned)parameter("serve", 1500000);
    window = (unsigned)parameter("window", 1500000);
    work_passes = (unsigned)parameter("work", 500000);
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        dawdle(w, work_passes);
        while (__atomic_exchange_n(&server.busy, 1, __ATOMIC_ACQUIRE)) {
            dawdle(w, window);
            monitor_enter(w, &monitor);
            monitor_wait(w, &monitor); /* the bug: it may be free by now */
            monitor_exit(w, &monitor);
            w->count[WAITED]++;
        }
        dawdle(w, serve);
        __atomic_store_n(&server.busy, 0, __ATOMIC_RELEASE);
        monitor_enter(w, &monitor);
        monitor_notify(w, &monitor);
        monitor_exit(w, &monitor);
        w->count[SERVED]++;
        note(w, w->count[WAITED]);
    }
}

static bool check(void)
{
    count("served", sum(SERVED));
    count("waited", sum(WAITED));
    return sum(SERVED) == (uint64_t)passes * workers;
}

struct litmus litmus = {"lost-notify", prepare, work, check};
