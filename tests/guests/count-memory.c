#include "tests/guests/guest.h"

#define TICKS 40

/* A loop whose progress shows in memory only: all registers are equal in each pass, and so are the
 * arithmetic flags but for a few passes. */
static uint64_t count;

void guest_main(void)
{
    uint64_t n = parameter("ticks", TICKS);

    timer_start(100);
    UNTIL_TICKS(n, "incq %0", "+m"(count));
    report_ticks(n);
    report("count", count);
}
