#include "guest-tools/litmus/litmus.h"

/*
 * Piper (IBM Concurrency Testing Repository): the condition for wait. Passengers wait for a seat in
 * a plane with half as many as there are passengers; who is woken does not look again whether there
 * is one ("if" where "while" belongs), so that there are more on board than seats.
 *
 *   passes  flights of each CPU
 *   window  passes of dawdle() on board
 *   work    the same between flights
 */
static struct monitor monitor;
static struct {
    OWN_PAGE volatile unsigned on_board;
    uint64_t overbooked, waited;
} plane;

static unsigned passes, window, work_passes, seats;

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 60);
    window = (unsigned)parameter("window", 20000);
    work_passes = (unsigned)parameter("work", 100000);
    seats = workers / 2;
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        monitor_enter(w, &monitor);
        if (plane.on_board == seats) { /* the bug: should be while */
            plane.waited++;
            monitor_wait(w, &monitor);
        }
        plane.on_board++;
        note(w, plane.on_board);
        plane.overbooked += plane.on_board > seats;
        monitor_exit(w, &monitor);
        dawdle(w, window);
        monitor_enter(w, &monitor);
        plane.on_board--;
        monitor_notify_all(w, &monitor);
        monitor_exit(w, &monitor);
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    count("waited", plane.waited);
    count("overbooked", plane.overbooked);
    return plane.overbooked == 0;
}

struct litmus litmus = {"piper", prepare, work, check};
