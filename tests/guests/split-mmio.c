#include "tests/guests/guest.h"

/* Loads and stores of 8 bytes that cross the edge of a page where there are devices, where there is
 * nothing, and where RAM ends: KVM makes two accesses of each, of 1 to 7 bytes. Parameter: mib=,
 * how much RAM there is. */
#define DEVICES 0xc0000000ull /* the first BAR */
#define NOTHING 0xd0000000ull

static uint64_t sum;

static void cross(uint64_t edge, uint64_t value)
{
    for (uint64_t at = edge - 7; at < edge; at++) {
        volatile uint64_t *word = (volatile uint64_t *)at;
        sum = mix(sum, *word);
        *word = value;
        sum = mix(sum, *word);
    }
}

void guest_main(void)
{
    cross(DEVICES + PAGE_BYTES, 0);
    cross(NOTHING + PAGE_BYTES, 0x0123456789abcdef);
    cross(parameter("mib", 32) << 20, 0x0123456789abcdef);
    const uint64_t nothing = *(volatile uint64_t *)(NOTHING + PAGE_BYTES - 3);
    put(nothing == UINT64_MAX ? "nothing is ones\n" : "nothing is something\n");
    report("sum", sum);
}
