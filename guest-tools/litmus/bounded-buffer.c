#include "guest-tools/litmus/litmus.h"

/*
 * BoundedBuffer (IBM Concurrency Testing Repository): notify instead of notifyAll. Producers and
 * consumers of a buffer wait in the same queue, and one of it is woken, who may be of the wrong
 * kind: he waits again, and so do all. With two CPUs, one of each kind, that cannot happen.
 *
 *   items     to go through the buffer
 *   capacity  of the buffer, at most 64
 *   work      passes of dawdle() between accesses
 */
#define CAPACITY_MAX 64

static struct monitor monitor;
static struct {
    OWN_PAGE volatile unsigned head, count, to_put, to_take;
    volatile uint64_t item[CAPACITY_MAX], put, taken;
} buffer;

static unsigned items, capacity, work_passes;

static void prepare(void)
{
    items = (unsigned)parameter("items", 60);
    capacity = (unsigned)parameter("capacity", 1);
    work_passes = (unsigned)parameter("work", 400000);
    if (!capacity || capacity > CAPACITY_MAX)
        refuse("capacity= is 1 to 64");
    buffer.to_put = buffer.to_take = items;
}

static void put_item(struct worker *w, uint64_t item)
{
    while (buffer.count == capacity)
        monitor_wait(w, &monitor);
    buffer.item[(buffer.head + buffer.count++) % capacity] = item;
    buffer.put += item;
    monitor_notify(w, &monitor); /* the bug: it may be a producer that wakes up */
}

static uint64_t take_item(struct worker *w)
{
    while (buffer.count == 0)
        monitor_wait(w, &monitor);
    const uint64_t item = buffer.item[buffer.head];
    buffer.head = (buffer.head + 1) % capacity;
    buffer.count--;
    buffer.taken += item;
    monitor_notify(w, &monitor); /* the bug once more */
    return item;
}

static void work(struct worker *w)
{
    const bool produces = w->number % 2 == 0;
    volatile unsigned *const left = produces ? &buffer.to_put : &buffer.to_take;

    for (bool done = false; !done;) {
        dawdle(w, work_passes);
        monitor_enter(w, &monitor);
        done = *left == 0;
        if (!done) {
            (*left)--;
            if (produces)
                put_item(w, 1 + random_below(w, 1000));
            else
                note(w, take_item(w));
        }
        monitor_exit(w, &monitor);
    }
}

static bool check(void)
{
    count("waiting_to_put", buffer.to_put);
    count("waiting_to_take", buffer.to_take);
    return buffer.put == buffer.taken;
}

struct litmus litmus = {"bounded-buffer", prepare, work, check};
