#include "tests/guests/guest.h"

/* Interrupts that find the CPU in a loop which a register counts. */
void guest_main(void)
{
    uint64_t count = 0;

    timer_start(100);
    UNTIL_TICKS(40, "inc %0", : "+r"(count));
    report("ticks", 40);
    report("count", count);
}
