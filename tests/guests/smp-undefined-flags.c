#include "tests/guests/smp.h"

#define PASSES 150
#define SHARED 6

/*
 * Two CPUs that take six pages from each other, in opposite orders. They come to each page right
 * behind a BTS, which leaves OF, SF, AF and PF undefined: in the emulated host what they then are
 * depends on whether it was stepped, or run together with the ADD before it. A CPU that has to give
 * up one page is stepped through a pass of its loop, if it may be waiting (there are PAUSEs), and
 * can so come to a page that it has lost already. There it stands, in the recording, with flags
 * that it does not have in a replay. A pass is to take longer than a CPU is waited for, and have
 * few instructions: therefore the LOCKs that cross a line, for which the emulated host stops all
 * CPUs.
 */
static struct {
    OWN_PAGE volatile uint64_t word;
} shared[SHARED];
static struct {
    OWN_PAGE uint64_t line[16];
} own[CPUS_MAX];
static volatile unsigned done;

static void work(unsigned cpu)
{
    const uint64_t passes = parameter("passes", PASSES);
    uint64_t sum = cpu, *line = own[cpu].line;

    for (uint64_t i = 0; i < passes * SHARED; i++) {
        const uint64_t at = cpu ? SHARED - 1 - i % SHARED : i % SHARED;
        __asm__ volatile(".rept 25\n\t"
                         "pause\n\t"
                         ".rept 16\n\tlock incq 60(%[line])\n\t.endr\n\t"
                         ".endr\n\t"
                         "add $0x12345679, %k[sum]\n\t"
                         "btsq $3, %[bits]\n\t"
                         "addq %[sum], %[word]"
                         : [sum] "+r"(sum), [bits] "+r"(line[0]), [word] "+m"(shared[at].word)
                         : [line] "r"(line)
                         : "cc", "memory");
    }
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

void guest_main(void)
{
    uint64_t sum = 0;

    start_cpus(2, work);
    work(0);
    while (done < 2)
        pause();
    for (unsigned i = 0; i < SHARED; i++)
        sum += shared[i].word;
    report("sum", sum);
}
