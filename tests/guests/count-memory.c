#include "tests/guests/guest.h"

/* A loop whose progress shows in memory only: all registers are equal in each pass, and so are the
 * arithmetic flags but for a few passes. */
static uint64_t count;

void guest_main(void)
{
    timer_start(100);
    UNTIL_TICKS(40, "incq %0", : "+m"(count));
    report("ticks", 40);
    report("count", count);
}
