#include "tests/guests/smp.h"

#define PASSES 2000
#define PORTS  8 /* accesses of the first CPU in each pass */
#define DELAY  100000

/*
 * For landings at CPL0: where the second CPU is stopped, two counters alone tell passes of its loop
 * apart, on pages with nothing else, which look like page tables whenever they are odd. And for
 * recordings that end at any moment: the second CPU writes its own page and then waits for the
 * other one's; meanwhile the first gets at what it has written, and shows what follows from that at
 * port after port. Where a recording ends there, it holds those ports and not the page fault that
 * the second CPU waits at, since a fault is in the recording only when it is served.
 */
static struct {
    OWN_PAGE volatile uint64_t word;
} first, second;
static volatile unsigned done;

static void delay(uint64_t passes)
{
    for (uint64_t i = 0; i < passes; i++)
        __asm__ volatile("");
}

static void work(unsigned cpu)
{
    const uint64_t passes = parameter("passes", PASSES);
    uint64_t sum = 1;

    for (uint64_t i = 0; (cpu || i < passes) && !done; i++) {
        if (cpu) {
            second.word++;
            first.word++;
            delay(DELAY / 10);
            continue;
        }
        first.word++;
        sum = mix(sum, second.word);
        for (unsigned k = 0; k < PORTS; k++) {
            __asm__ volatile("outb %%al, $0x80" : : "a"(0), "b"(sum));
            delay(DELAY);
        }
    }
    done = 1;
}

void guest_main(void)
{
    start_cpus(2, work);
    work(0);
    report("first", first.word);
    report("second", second.word);
}
