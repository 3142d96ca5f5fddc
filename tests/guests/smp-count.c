#include "tests/guests/smp.h"

#define PASSES 200000

/*
 * Two CPUs or more on two counters: one under a lock, for which they wait with interrupts off, and
 * one without, by a read and a write that others come between. The first has every pass in the end;
 * what the second has, and who came when, is the schedule's doing, and is the same in each replay.
 * With turns=N they go on, without counting, until the lock has gone N times from one CPU to
 * another: how long a turn is in passes, the host's speed decides.
 */
static volatile uint64_t lock, locked_count, racing_count, order, turns;
static volatile unsigned done, last;

static void take(unsigned cpu)
{
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
        while (lock)
            pause();
    turns += cpu != last;
    last = cpu;
}

static void give_back(void)
{
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

static void count(unsigned cpu)
{
    const uint64_t passes = parameter("passes", PASSES), least_turns = parameter("turns", 0);

    for (uint64_t i = 0; i < passes; i++) {
        take(cpu);
        locked_count++;
        order = mix(order, cpu);
        give_back();
        racing_count = racing_count + 1;
    }
    while (turns < least_turns) {
        take(cpu);
        give_back();
    }
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

void guest_main(void)
{
    const unsigned cpus = (unsigned)parameter("cpus", 2);

    start_cpus(cpus, count);
    count(0);
    while (done < cpus)
        pause();
    report("counted", locked_count);
    report("raced", racing_count);
    report("order", order);
    report("turns", turns);
}
