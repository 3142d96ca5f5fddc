#include "tests/guests/guest.h"

/* Several items in one exit: REP OUTSB to the console, REP INSB from a counter that runs. */
static void out_string(uint16_t port, const char *data, uint64_t n)
{
    __asm__ volatile("rep outsb" : "+S"(data), "+c"(n) : "d"(port) : "memory");
}

static void in_string(uint16_t port, uint8_t *data, uint64_t n)
{
    __asm__ volatile("rep insb" : "+D"(data), "+c"(n) : "d"(port) : "memory");
}

void guest_main(void)
{
    static const char text[] = "one string\n";
    static uint8_t counter[300];
    uint64_t sum = 0;

    out_string(0x3f8, text, sizeof text - 1);
    in_string(0x40, counter, sizeof counter);
    for (unsigned i = 0; i < sizeof counter; i++)
        sum = mix(sum, counter[i]);
    report("sum", sum);
}
