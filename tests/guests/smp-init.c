#include "tests/guests/smp.h"

/*
 * The second CPU is initialized and started over and over, by the first one, while it comes to its
 * HLT: an INIT then ends that, and the STARTUP behind it must be heard. "rounds" of it, with longer
 * and longer times, up to "most" passes of a loop, between its last word and the INIT.
 */
#define PATIENCE 100000000ull /* passes */

static volatile unsigned about_to_halt;

static void halt(unsigned cpu)
{
    (void)cpu;
    about_to_halt++;
}

void guest_main(void)
{
    const unsigned rounds = (unsigned)parameter("rounds", 200);
    const uint64_t most = parameter("most", 4000);
    unsigned round;
    uint64_t waited = 0;

    start_cpus(2, halt);
    for (round = 1; round <= rounds && waited < PATIENCE; round++) {
        for (waited = 0; about_to_halt < round && waited < PATIENCE; waited++)
            pause();
        for (volatile uint64_t i = 0; i < round * most / rounds; i++)
            continue;
        *trampoline_word(trampoline_number) = 1;
        send_start(1, 0);
    }
    report("started", round - 1);
}
