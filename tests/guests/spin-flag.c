#include "tests/guests/guest.h"

#define TICKS 120
#define WORK  1000u /* more with each tick, up to 64 times that */

/*
 * Loops that wait for the interrupt handler, as idle code does: nothing at all changes from pass to
 * pass. The monitor knows such a loop by a PAUSE near it, so the one without is kept away from the
 * other: hence the alignment.
 */
static volatile uint64_t flag;

static void set_flag(const struct interrupted *found)
{
    (void)found;
    flag = 1;
}

static __attribute__((noinline, aligned(1024))) void spin(void)
{
    __asm__ volatile("1:\n\tcmpq $0, %0\n\tje 1b" : : "m"(flag) : "cc");
}

static __attribute__((noinline, aligned(1024))) void spin_with_pause(void)
{
    __asm__ volatile("1:\n\tpause\n\tcmpq $0, %0\n\tje 1b" : : "m"(flag) : "cc");
}

static __attribute__((noinline, aligned(1024))) uint64_t react(uint64_t sum)
{
    flag = 0;
    for (uint64_t i = 0, work = WORK * (ticks % 64); i < work; i++)
        sum = mix(sum, ticks);
    return sum;
}

void guest_main(void)
{
    uint64_t n = parameter("ticks", TICKS), sum = 0;

    at_tick = set_flag;
    timer_start(100);
    while (ticks < n / 2) {
        spin();
        sum = react(sum);
    }
    while (ticks < n) {
        spin_with_pause();
        sum = react(sum);
    }
    report_ticks(n);
    report("sum", sum);
}
