#include "tests/guests/smp.h"

/*
 * Ends of machines with several CPUs. "how" says which:
 *
 *   1  the second CPU has a triple fault, while the first one computes
 *   2  all CPUs halt with interrupts off
 *   3  two CPUs wait for each other's locks with interrupts off, for ever
 *   4  the others are never started
 *   5  the second CPU computes for ever, with interrupts off, while the first one does its work
 */
static unsigned how;
static volatile unsigned first_lock, second_lock;

static void take(volatile unsigned *lock)
{
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
        pause();
}

static void other(unsigned cpu)
{
    static const struct __attribute__((packed)) {
        uint16_t limit;
        uint64_t base;
    } none = {0, 0};

    if (cpu != 1)
        return;
    switch (how) {
    case 1:
        __asm__ volatile("lidt %0\n\tud2" : : "m"(none));
        break;
    case 3:
        take(&second_lock);
        take(&first_lock);
        break;
    case 5:
        for (volatile uint64_t i = 0;; i++)
            continue;
    default:
        break;
    }
}

void guest_main(void)
{
    volatile uint64_t sum = 0;

    how = (unsigned)parameter("how", 1);
    put("about to end\n");
    if (how == 3)
        take(&first_lock);
    if (how != 4)
        start_cpus((unsigned)parameter("cpus", 2), other);
    switch (how) {
    case 1:
        for (;;)
            sum = mix(sum, 1);
    case 2:
        __asm__ volatile("cli\n\thlt");
        break;
    case 3:
        take(&second_lock);
        break;
    default:
        for (unsigned i = 0; i < 100; i++) {
            for (unsigned j = 0; j < 10000; j++)
                sum = mix(sum, j);
            report("sum", sum);
        }
    }
}
