#include "guest-tools/litmus/litmus.h"

/*
 * BufferWriter (IBM Concurrency Testing Repository): wrong lock or no lock. Writers append to one
 * buffer; each takes a monitor for that, but its own one.
 *
 *   passes  of each CPU, 8192 of all at most
 *   window  passes of dawdle() between the position's load and store
 *   work    the same between
 */
#define ENTRIES_MAX 8192

static struct monitor monitor[CPUS_MAX];
static struct {
    OWN_PAGE volatile unsigned position;
    OWN_PAGE volatile uint8_t entry[ENTRIES_MAX];
} buffer;

static unsigned passes, window, work_passes;

static void prepare(void)
{
    passes = (unsigned)parameter("passes", 80);
    window = (unsigned)parameter("window", 1000);
    work_passes = (unsigned)parameter("work", 40000);
    if ((uint64_t)passes * workers > ENTRIES_MAX)
        refuse("passes= times cpus= is at most 8192");
}

static void work(struct worker *w)
{
    for (unsigned i = 0; i < passes; i++) {
        monitor_enter(w, &monitor[w->number]); /* the bug */
        const unsigned position = buffer.position;
        buffer.entry[position] = (uint8_t)(w->number + 1);
        dawdle(w, window);
        buffer.position = position + 1;
        monitor_exit(w, &monitor[w->number]);
        note(w, position);
        dawdle(w, work_passes);
    }
}

static bool check(void)
{
    const unsigned written = passes * workers;

    count("written", written);
    count("lost", written - buffer.position);
    return buffer.position == written;
}

struct litmus litmus = {"buffer-writer", prepare, work, check};
