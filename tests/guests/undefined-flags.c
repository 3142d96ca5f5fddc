#include "tests/guests/guest.h"

#define TICKS 40

/*
 * BTS leaves OF, SF, AF and PF undefined. In the emulated host what they are then depends on
 * whether the instruction was stepped or run together with the one before it, so a place behind it
 * is not to be told by them; and the interrupt, which saves them, is to find those of the
 * recording.
 */
static uint64_t n, count;

static void work(void)
{
    uint64_t sum = 0;
    static uint64_t word;

    UNTIL_TICKS(n,
                "inc %[count]\n\tadd $0x12345679, %k[sum]\n\t"
                "lock btsq $3, %[word]\n\tjb 2f\n2:\tadd %k[count], %k[sum]\n\t"
                "lock btsq $5, %[word]\n\tjb 3f\n3:",
                [count] "+r"(count), [sum] "+r"(sum), [word] "+m"(word));
}

static void done(void)
{
    report_ticks(n);
    report("count", count);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    timer_start(100);
    at_chosen_level(work, done);
}
