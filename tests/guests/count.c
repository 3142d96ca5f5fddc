#include "tests/guests/guest.h"

#define TICKS 40

/* Interrupts that find the CPU in a loop which a register counts. */
void guest_main(void)
{
    uint64_t n = parameter("ticks", TICKS), count = 0;

    timer_start(100);
    UNTIL_TICKS(n, "inc %0", "+r"(count));
    report_ticks(n);
    report("count", count);
}
