#include "tests/guests/guest.h"

/* RDRAND, without a look at CPUID: whether the CPU has it, and what it gives, is not recorded. */
void guest_main(void)
{
    uint64_t sum = 0, value;

    for (unsigned i = 0; i < 4; i++) {
        __asm__ volatile("rdrand %0" : "=r"(value) : : "cc");
        sum = mix(sum, value);
    }
    report("sum", sum);
}
