#include "tests/guests/smp.h"

/* Two CPUs wait for each other; then one of them reboots the machine, in the second boot the other
 * one. The RTC's year, 2000 plus how often it has, is all that survives. */
#define ROUNDS 10

static volatile uint64_t asked, answered;
static volatile bool ends; /* the other CPU is to reboot the machine */

static unsigned rtc_year(void)
{
    outb(0x70, 9);
    const uint8_t value = inb(0x71);

    return (value >> 4) * 10u + (value & 15);
}

static void other(unsigned cpu)
{
    (void)cpu;
    for (;;) {
        if (ends)
            outb(0xcf9, 0x06);
        if (answered != asked)
            answered = asked;
        pause();
    }
}

void guest_main(void)
{
    const unsigned year = rtc_year(), boot = year > 20 ? 1 : year + 1;

    report("boot", boot);
    start_cpus(2, other);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        asked = round;
        while (answered != round)
            pause();
    }
    report("answered", answered);
    outb(0x70, 9);
    outb(0x71, (uint8_t)boot);
    if (boot == 1)
        outb(0x64, 0xfe);
    ends = boot == 2;
    while (ends)
        pause();
    put("two CPUs\n");
}
