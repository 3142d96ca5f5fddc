#ifndef TESTS_GUESTS_SMP_H
#define TESTS_GUESTS_SMP_H

#include "tests/guests/guest.h"

/* For guests with several CPUs: starting them, and their local APICs. */
#define LAPIC_ID            0x02 /* MMIO offset / 16, MSR - 0x800 */
#define LAPIC_TPR           0x08
#define LAPIC_EOI           0x0b
#define LAPIC_SVR           0x0f
#define LAPIC_ICR           0x30
#define LAPIC_ICR_HIGH      0x31
#define LAPIC_LVT_TIMER     0x32
#define LAPIC_INITIAL_COUNT 0x38
#define LAPIC_DIVIDE        0x3e
#define ICR_OTHERS          0xc0000u
#define ICR_NMI             0x00400u
#define ICR_INIT            0x00500u
#define ICR_STARTUP         0x00600u
#define ICR_ASSERT          0x04000u

static bool x2apic; /* how APICs are accessed; "x2apic=1" on the command line */

static inline uint64_t rdmsr(uint32_t msr)
{
    uint32_t low, high;

    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
    return (uint64_t)high << 32 | low;
}

static inline void wrmsr(uint32_t msr, uint64_t value)
{
    __asm__ volatile("wrmsr" : : "a"((uint32_t)value), "d"((uint32_t)(value >> 32)), "c"(msr));
}

static inline uint32_t lapic_read(unsigned reg)
{
    return x2apic ? (uint32_t)rdmsr(0x800 + reg) : *(volatile uint32_t *)(0xfee00000ull + reg * 16);
}

static inline void lapic_write(unsigned reg, uint32_t value)
{
    if (x2apic)
        wrmsr(0x800 + reg, value);
    else
        *(volatile uint32_t *)(0xfee00000ull + reg * 16) = value;
}

/* Interrupt CPU number `to`, or as a shorthand in icr says. */
static inline void send(unsigned to, uint32_t icr)
{
    if (x2apic) {
        wrmsr(0x800 + LAPIC_ICR, (uint64_t)to << 32 | icr | ICR_ASSERT);
        return;
    }
    lapic_write(LAPIC_ICR_HIGH, to << 24);
    lapic_write(LAPIC_ICR, icr | ICR_ASSERT);
}

static inline void lapic_enable(void)
{
    if (x2apic)
        wrmsr(0x1b, rdmsr(0x1b) | 0x400);
    lapic_write(LAPIC_SVR, 0x1ff);
}

static inline unsigned this_cpu(void)
{
    return x2apic ? lapic_read(LAPIC_ID) : lapic_read(LAPIC_ID) >> 24;
}

static void (*cpu_code)(unsigned cpu);
static volatile unsigned cpus_arrived;
static OWN_PAGE __attribute__((used)) uint8_t cpu_stack[CPUS_MAX][PAGE_BYTES];

/* What STARTUP starts at 0x8000: from real mode to the long mode that the first CPU is in. */
#define TRAMPOLINE 0x8000ull
extern const uint8_t trampoline[], trampoline_end[], trampoline_cr3[], trampoline_number[];
__asm__(".code16\n"
        "trampoline:\n"
        "    cli\n"
        "    xor %ax, %ax\n"
        "    mov %ax, %ds\n"
        "    lgdtl 0x8000 + trampoline_gdtr - trampoline\n"
        "    mov $0x20, %eax\n" /* PAE */
        "    mov %eax, %cr4\n"
        "    mov 0x8000 + trampoline_cr3 - trampoline, %eax\n"
        "    mov %eax, %cr3\n"
        "    mov $0xc0000080, %ecx\n"
        "    mov $0x100, %eax\n" /* EFER.LME */
        "    xor %edx, %edx\n"
        "    wrmsr\n"
        "    mov $0x80010011, %eax\n" /* PG WP ET PE */
        "    mov %eax, %cr0\n"
        "    ljmpl $0x10, $0x8000 + trampoline64 - trampoline\n"
        ".code64\n"
        "trampoline64:\n"
        "    mov $0x18, %eax\n"
        "    mov %eax, %ds\n    mov %eax, %es\n    mov %eax, %ss\n"
        "    mov $1, %edi\n"
        "    lock xadd %edi, 0x8000 + trampoline_number - trampoline\n"
        "    mov %edi, %eax\n"
        "    inc %eax\n"
        "    shl $12, %eax\n"
        "    lea cpu_stack(%rax), %rsp\n"
        "    mov $cpu_arrives, %rax\n"
        "    call *%rax\n"
        ".balign 8\n"
        "trampoline_gdt:\n"
        "    .quad 0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff\n"
        "trampoline_gdtr:\n"
        "    .word 31\n    .long 0x8000 + trampoline_gdt - trampoline\n"
        ".balign 4\n"
        "trampoline_cr3: .long 0\n"
        "trampoline_number: .long 1\n"
        "trampoline_end:\n");

static __attribute__((used)) void cpu_arrives(unsigned order)
{
    (void)order;
    lapic_enable();
    __atomic_add_fetch(&cpus_arrived, 1, __ATOMIC_SEQ_CST);
    cpu_code(this_cpu());
    for (;;)
        __asm__ volatile("cli\n\thlt");
}

static inline volatile uint32_t *trampoline_word(const uint8_t *label)
{
    return (volatile uint32_t *)(TRAMPOLINE + (uint64_t)(label - trampoline));
}

/* INIT and STARTUP, to CPU number `to`, or to others by shorthand. */
static inline void send_start(unsigned to, uint32_t shorthand)
{
    send(to, shorthand | ICR_INIT);
    send(to, shorthand | ICR_STARTUP | (TRAMPOLINE >> 12));
}

/* Start all other CPUs, in `code`, and wait until `count` CPUs with this one are there. */
static inline void start_cpus(unsigned count, void (*code)(unsigned cpu))
{
    uint8_t *at = (uint8_t *)TRAMPOLINE;
    uint64_t cr3;

    x2apic = parameter("x2apic", 0);
    for (unsigned i = 0; trampoline + i < trampoline_end; i++)
        ((volatile uint8_t *)at)[i] = trampoline[i];
    __asm__ volatile("mov %%cr3, %0" : "=r"(cr3));
    *trampoline_word(trampoline_cr3) = (uint32_t)cr3;
    cpu_code = code;
    cpus_arrived = 1;
    lapic_enable();
    send_start(0, ICR_OTHERS);
    while (cpus_arrived < count)
        pause();
}

#endif
