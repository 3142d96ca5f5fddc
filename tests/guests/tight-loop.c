#include "tests/guests/guest.h"

#define TICKS  120
#define PASSES 50000000u /* much longer than a tick */

/* The tightest loop there is; whether to go on is looked up only between two of them. */
void guest_main(void)
{
    uint64_t n = parameter("ticks", TICKS), passes = parameter("passes", PASSES), loops = 0;

    timer_start(100);
    for (; ticks < n; loops++) {
        uint64_t left = passes;
        __asm__ volatile("1:\n\tdec %0\n\tjnz 1b" : "+r"(left) : : "cc");
    }
    report_ticks(n);
    report("loops", loops);
}
