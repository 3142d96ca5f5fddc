#include "tests/guests/guest.h"

#define TICKS 10

/* One pass takes about as long as the time between two ticks: each place is passed a few times in
 * it. */
void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS);
    uint64_t count = 0;

    timer_start(100);
    __asm__ volatile("1:\n\t"
                     ".rept 1000000\n\t"
                     "inc %[count]\n\t"
                     ".endr\n\t"
                     "cmp %[n], ticks(%%rip)\n\t"
                     "jb 1b"
                     : [count] "+r"(count)
                     : [n] "r"(n)
                     : "cc", "memory");
    report("count", count);
}
