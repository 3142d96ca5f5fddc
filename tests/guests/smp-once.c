#include "tests/guests/smp.h"

#define ROUNDS 20

/*
 * The second CPU waits, with interrupts off, in a loop whose first pass alone changes memory: it
 * answers there, in a function that the loop calls. All later passes are the same, and so is the
 * first one to whoever does not look at that word. Its turn ends somewhere in that loop, and the
 * first CPU sees whether that was behind the first pass.
 */
static volatile uint64_t called __attribute__((used)), answered __attribute__((used));

__asm__(".text\n"
        "look:\n"
        "    mov called(%rip), %rax\n"
        "    cmp %rax, answered(%rip)\n"
        "    je 1f\n"
        "    mov %rax, answered(%rip)\n"
        "1:  ret\n");

static void other(unsigned cpu)
{
    (void)cpu;
    __asm__ volatile("1:\n\t"
                     "call look\n\t"
                     "xor %%eax, %%eax\n\t"
                     "pause\n\t"
                     "add $1, %%eax\n\t"
                     "lea 5(%%rax), %%edx\n\t"
                     "xor %%eax, %%eax\n\t"
                     "jmp 1b"
                     :
                     :
                     : "rax", "rdx", "cc", "memory");
}

void guest_main(void)
{
    const uint64_t rounds = parameter("rounds", ROUNDS);
    uint64_t waits = 0;

    start_cpus(2, other);
    for (uint64_t round = 1; round <= rounds; round++) {
        called = round;
        while (answered != round) {
            pause();
            waits++;
        }
        report("answered", answered);
    }
    report("waited", waits);
}
