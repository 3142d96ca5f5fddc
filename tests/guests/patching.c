#include "tests/guests/guest.h"

#define TICKS   6
#define PAGES   1024
#define PATCHES 64 /* of a page */

/*
 * What Linux does before it has user space: it goes through its text, looks at each place in a
 * function that all of them share, and patches it, behind which an IRET to itself serializes. The
 * places are all the passes differ in. No comparison inside the guest goes past the IRET.
 */
static uint8_t text[PAGES][PAGE_BYTES] OWN_PAGE;

static __attribute__((noinline)) uint64_t look_at(const uint8_t *place)
{
    uint64_t seen = 0;

    for (unsigned i = 0; i < 8; i++)
        seen = mix(seen, place[i]);
    return seen;
}

static void serialize(void)
{
    uint64_t scratch;

    __asm__ volatile("mov %%ss, %k0\n\t"
                     "push %0\n\t"
                     "push %%rsp\n\t"
                     "addq $8, (%%rsp)\n\t"
                     "pushf\n\t"
                     "mov %%cs, %k0\n\t"
                     "push %0\n\t"
                     "lea 1f(%%rip), %0\n\t"
                     "push %0\n\t"
                     "iretq\n"
                     "1:"
                     : "=&r"(scratch)
                     :
                     : "cc", "memory");
}

void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS);
    uint64_t passes = 0;

    timer_start(20);
    for (; ticks < n; passes++) {
        uint8_t *const place =
            &text[passes / PATCHES % PAGES][passes % PATCHES * (PAGE_BYTES / PATCHES)];
        *place = (uint8_t)(look_at(place) + passes);
        serialize();
    }
    report_ticks(n);
    report("passes", passes);
}
