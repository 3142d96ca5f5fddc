#include "tests/guests/smp.h"

/*
 * The timer of the local APIC interrupts, while the task priority (CR8) masks that or does not, in
 * turn. The priority is raised without an exit, and the loop behind that has none: an interrupt
 * that becomes pending there must not come before the priority is lowered again. "rounds" of both.
 */
#define VECTOR_TIMER 0x40
#define PRIORITY     4 /* masks it */
#define PERIODIC     0x20000u
#define DIVIDE_BY_1  0xbu

static volatile uint64_t interrupts, too_early, masked;

static __attribute__((interrupt)) void on_timer(struct interrupt_frame *frame)
{
    (void)frame;
    interrupts++;
    too_early += masked;
    lapic_write(LAPIC_EOI, 0);
}

static void set_priority(uint64_t priority)
{
    __asm__ volatile("mov %0, %%cr8" : : "r"(priority) : "memory");
}

void guest_main(void)
{
    const uint64_t rounds = parameter("rounds", 100), spin = parameter("spin", 300000);

    set_handler(VECTOR_TIMER, on_timer);
    load_idt();
    lapic_enable();
    lapic_write(LAPIC_DIVIDE, DIVIDE_BY_1);
    lapic_write(LAPIC_LVT_TIMER, PERIODIC | VECTOR_TIMER);
    lapic_write(LAPIC_INITIAL_COUNT, (uint32_t)parameter("period", 3000000));
    __asm__ volatile("sti");
    for (uint64_t round = 0; round < rounds; round++) {
        set_priority(PRIORITY);
        masked = 1;
        for (volatile uint64_t i = 0; i < spin; i++)
            continue;
        masked = 0;
        set_priority(0);
        for (volatile uint64_t i = 0; i < spin; i++)
            continue;
    }
    __asm__ volatile("cli");
    report("interrupts", interrupts);
    report("too early", too_early);
}
