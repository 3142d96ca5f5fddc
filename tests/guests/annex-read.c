#include "tests/guests/guest.h"

/* Maps the places where dittovm may keep memory of its own (vmm/points/annex.c), above all RAM, one
 * after another, and looks at each, and writes to it, again and again between ticks that come while
 * it computes: nothing is there, ever. Parameter: ticks=. */
#define FIRST   0x7f00000000ull
#define STEP    0x40000000ull
#define PLACES  4
#define PRESENT 1ull
#define WRITE   2ull
#define LARGE   0x80ull

static uint64_t directory[PLACES][512] OWN_PAGE;

static void map(uint64_t place, uint64_t *table)
{
    uint64_t *root, *pointers;

    __asm__("mov %%cr3, %0" : "=r"(root));
    pointers = (uint64_t *)(root[0] & ~0xfffull);
    for (unsigned i = 0; i < 512; i++)
        table[i] = (place + i * (2ull << 20)) | PRESENT | WRITE | LARGE;
    pointers[place / STEP] = (uint64_t)table | PRESENT | WRITE;
}

void guest_main(void)
{
    const uint64_t n = parameter("ticks", 40);
    volatile uint64_t spent = 0;
    uint64_t found = 0;

    timer_start(100);
    for (uint64_t round = 0; ticks < n; round++) {
        const unsigned which = round / 4 % PLACES;
        const uint64_t place = FIRST - which * STEP;
        volatile uint64_t *word = (volatile uint64_t *)(place + round % 8 * PAGE_BYTES);
        map(place, directory[which]);
        if (*word != UINT64_MAX)
            found++;
        *word = round;
        for (const uint64_t until = spent + parameter("spend", 2000000); spent < until;)
            spent++;
    }
    report_ticks(n);
    put(found ? "something is there\n" : "nothing is there\n");
}
