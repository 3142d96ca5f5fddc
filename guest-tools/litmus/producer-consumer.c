#include "guest-tools/litmus/litmus.h"

/*
 * ProducerConsumer (IBM Concurrency Testing Repository): orphaned threads. The first CPU, the
 * master, gives jobs to the others through a queue. The others count a job off the queue outside
 * the monitor, so that the number of jobs may become wrong; a master who finds it wrong dies, and
 * the others wait for ever.
 *
 *   jobs    of all
 *   window  passes of dawdle() between the number's load and store
 *   work    the same for each job, and for the master between jobs
 */
#define CAPACITY 16u

static struct monitor monitor;
static struct {
    OWN_PAGE volatile unsigned put, taken, queued;
    volatile bool closed;
} queue;

static unsigned jobs, window, work_passes;

static void prepare(void)
{
    jobs = (unsigned)parameter("jobs", 60);
    window = (unsigned)parameter("window", 5000);
    work_passes = (unsigned)parameter("work", 100000);
}

static void master(struct worker *w)
{
    for (unsigned i = 0; i < jobs; i++) {
        dawdle(w, work_passes);
        monitor_enter(w, &monitor);
        while (queue.put - queue.taken == CAPACITY)
            monitor_wait(w, &monitor);
        queue.put++;
        queue.queued++;
        /* Those that are just being counted off make it more than there are, never less. */
        const bool wrong =
            queue.queued > CAPACITY + workers || queue.queued < queue.put - queue.taken;
        note(w, queue.queued);
        monitor_notify_all(w, &monitor);
        monitor_exit(w, &monitor);
        if (wrong) { /* a crash: nobody is told */
            w->count[0]++;
            return;
        }
    }
    monitor_enter(w, &monitor);
    queue.closed = true;
    monitor_notify_all(w, &monitor);
    monitor_exit(w, &monitor);
}

static void slave(struct worker *w)
{
    for (;;) {
        monitor_enter(w, &monitor);
        while (queue.put == queue.taken && !queue.closed)
            monitor_wait(w, &monitor);
        const bool done = queue.put == queue.taken;
        if (!done) {
            queue.taken++;
            monitor_notify_all(w, &monitor);
        }
        monitor_exit(w, &monitor);
        if (done)
            return;
        const unsigned before = queue.queued; /* the bug: not in the monitor */
        dawdle(w, window);
        queue.queued = before - 1;
        w->count[1]++;
        dawdle(w, work_passes * (workers - 1));
    }
}

static void work(struct worker *w)
{
    if (w->number == 0)
        master(w);
    else
        slave(w);
}

static bool check(void)
{
    count("jobs", sum(1));
    count("queued", queue.queued);
    count("crashed", sum(0));
    return sum(0) == 0 && queue.queued == 0;
}

struct litmus litmus = {"producer-consumer", prepare, work, check};
