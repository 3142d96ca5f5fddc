#include "tests/guests/smp.h"

/*
 * Instructions that make many accesses to where there is nothing, each an exit of its own, of which
 * KVM does all but the first in one go with the instruction: to read, change and write; a REP that
 * reads, that writes, that does both, that puts out; 16 bytes, also across the edge of a page. On
 * as many CPUs as cpus= says, rounds= times.
 */
static volatile uint64_t done;

__asm__(".text\n"
        ".globl chain\n"
        "chain:\n"
        "    mov $0xd0000ff8, %eax\n"
        "    add %rdi, 8(%rax)\n"
        "chain_adds:\n"
        "    xchg %rdi, (%rax)\n"
        "    movdqu (%rax), %xmm0\n"
        "    movdqu %xmm0, -3(%rax)\n"
        "    mov %rsi, %rdx\n"
        "    mov %rdx, %rdi\n"
        "    mov $0xd0000ff0, %esi\n"
        "    mov $19, %ecx\n"
        "    rep movsb\n"
        "    mov %rdx, %rsi\n"
        "    mov $0xd0000ff0, %edi\n"
        "    mov $5, %ecx\n"
        "    rep movsl\n"
        "    mov $0xd0000ff0, %esi\n"
        "    mov $0xd0001ff1, %edi\n"
        "    mov $3, %ecx\n"
        "    rep movsq\n"
        "    mov $0xd0000ffe, %esi\n"
        "    mov $0x80, %edx\n"
        "    mov $3, %ecx\n"
        "    rep outsb\n"
        "    lea (%rcx,%rdi), %rax\n"
        "    ret\n");
uint64_t chain(uint64_t value, uint8_t *buffer);

static void work(unsigned cpu)
{
    const uint64_t rounds = parameter("rounds", 100);
    uint8_t buffer[32] = {0};
    uint64_t sum = cpu;

    sse_on();
    for (uint64_t i = 0; i < rounds; i++) {
        sum = mix(sum, chain(i, buffer));
        for (unsigned byte = 0; byte < sizeof buffer; byte++)
            sum = mix(sum, buffer[byte]);
    }
    if (cpu == 0)
        report("sum", sum);
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

static void other(unsigned cpu)
{
    work(cpu);
    for (;;)
        __asm__ volatile("cli; hlt");
}

void guest_main(void)
{
    const unsigned cpus = (unsigned)parameter("cpus", 1);

    if (cpus > 1)
        start_cpus(cpus, other);
    work(0);
    while (done < cpus)
        pause();
    report("done", done);
}
