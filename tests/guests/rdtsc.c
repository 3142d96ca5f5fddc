#include "tests/guests/guest.h"

/* RDTSC at CPL0, which is patched when the guest is loaded. */
void guest_main(void)
{
    uint64_t last = rdtsc(), sum = 0;

    for (unsigned i = 0; i < 200; i++) {
        uint64_t now = rdtsc();
        if (now < last)
            put("time ran backwards\n");
        last = now;
        sum = mix(sum, now);
    }
    report("sum", sum);
}
