#include "tests/guests/smp.h"

#define VECTOR_IPI 0x40
#define ROUNDS     200

/*
 * A storm of interrupts between CPUs: in each round every CPU interrupts all others, by shorthand
 * or one by one, some with interrupts off for a while, and waits until all of its own have come.
 * Then an NMI for each.
 */
static volatile uint64_t got[CPUS_MAX], order;
static volatile unsigned arrived, nmis;
static unsigned cpus;

static __attribute__((interrupt)) void on_ipi(struct interrupt_frame *frame)
{
    const unsigned cpu = this_cpu();

    (void)frame;
    got[cpu]++;
    order = mix(order, cpu);
    lapic_write(LAPIC_EOI, 0);
}

static __attribute__((interrupt)) void on_nmi(struct interrupt_frame *frame)
{
    (void)frame;
    nmis++;
}

static void meet(unsigned round)
{
    __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
    while (arrived < round * cpus)
        pause();
}

static void storm(unsigned cpu)
{
    const unsigned rounds = (unsigned)parameter("rounds", ROUNDS);

    load_idt();
    meet(1);
    for (unsigned round = 1; round <= rounds; round++) {
        if ((round + cpu) % 3)
            __asm__ volatile("sti");
        if (round % 2)
            send(0, ICR_OTHERS | VECTOR_IPI);
        else
            for (unsigned to = 0; to < cpus; to++)
                if (to != cpu)
                    send(to, VECTOR_IPI);
        __asm__ volatile("sti");
        /* One that was sent twice before it was taken comes once. */
        meet(1 + round);
        __asm__ volatile("cli");
    }
    __asm__ volatile("sti");
    meet(2 + rounds);
}

void guest_main(void)
{
    uint64_t sum = 0;

    cpus = (unsigned)parameter("cpus", 2);
    set_handler(VECTOR_IPI, on_ipi);
    set_handler(2, on_nmi);
    load_idt();
    start_cpus(cpus, storm);
    storm(0);
    for (unsigned to = 1; to < cpus; to++) {
        const unsigned before = nmis;
        send(to, ICR_NMI);
        while (nmis == before)
            pause();
    }
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        sum += got[cpu];
    report("interrupts", sum);
    report("nmis", nmis);
    report("order", order);
}
