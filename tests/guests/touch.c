#include "tests/guests/guest.h"

/* Touches pages for the first time, one after another: where CPUs run at the same time each of them
 * is a page fault. Parameter: mib=, how much memory there is. */
#define FROM (16ull << 20)

void guest_main(void)
{
    const uint64_t end = parameter("mib", 32) << 20;
    uint64_t sum = 0;

    put("touching\n");
    for (uint64_t at = FROM; at < end; at += PAGE_BYTES)
        sum += *(volatile uint64_t *)at;
    report("sum", sum);
}
