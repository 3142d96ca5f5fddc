#include "tests/guests/guest.h"

#define TICKS     120
#define READS_MAX 64u      /* some ms with interrupts off */
#define WORK_MAX  4194304u /* some 10 ms with interrupts on */

/* Ticks that wait for STI while the guest reads the counter they come from, and ticks that find it
 * at work. How much of each is pseudo-random, so that the two drift against each other. */
static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint64_t read_counter(uint64_t sum)
{
    outb(0x43, 0x00); /* latch channel 0 */
    uint8_t low = inb(0x40);
    return mix(sum, (uint64_t)inb(0x40) << 8 | low);
}

void guest_main(void)
{
    uint64_t n = parameter("ticks", TICKS), reads_max = parameter("reads", READS_MAX),
             work_max = parameter("work", WORK_MAX), state = 1, sum = 0, rounds = 0;

    timer_start(100);
    for (; ticks < n; rounds++) {
        __asm__ volatile("cli");
        for (uint64_t reads = next(&state) % reads_max; reads; reads--)
            sum = read_counter(sum);
        __asm__ volatile("sti");
        for (uint64_t work = next(&state) % work_max; work; work--)
            sum = mix(sum, ticks);
    }
    report_ticks(n);
    report("rounds", rounds);
    report("sum", sum);
}
