#include "tests/guests/guest.h"

#define TICKS 60
/* Linux has its code in the upper half of the address space. */
#define UPPER 0xffffff8000000000ull

/*
 * A word on a kernel's stack that looks like a return address and is none: it leads into the middle
 * of an instruction, with E8, the first byte of a CALL, five bytes before. Linux had one, an old
 * return address whose lowest byte a bool was written over. The instruction is `imul 0x2c(%r13),
 * %eax`, behind a `shr %cl, %eax`, and the word leads to its displacement, 0x2c. Was that replaced
 * by a HLT, 0xf4, for however short, then it was multiplied by what lies 12 bytes before R13.
 */
static uint64_t n;
static __attribute__((used)) uint64_t passes, sum;
static uint32_t factor[64];

#define FACTOR   8
#define AT       16 /* R13 */
#define OPERAND  3
#define WORD(at) factor[AT + (at) / 4]

static __attribute__((noipa)) void work(void)
{
    __asm__ volatile(
        "lea 2f(%%rip), %%rdx\n\t"
        "push %%rdx\n\t"
        "mov %[at], %%r13\n\t"
        "xor %%ecx, %%ecx\n"
        "1:\n\tmov %[operand], %%eax\n\t"
        "shr %%cl, %%eax\n\t"
        ".byte 0x41, 0x0f, 0xaf, 0x45\n" /* imul ..., %eax */
        "2:\n\t.byte 0x2c\n\t"
        ".rept 200\n\tmov %%rdx, %%rdx\n\t.endr\n\t" /* no small loop, which may wait */
        "add %%rax, sum(%%rip)\n\t"
        "incq passes(%%rip)\n\t"
        "cmp %[n], ticks(%%rip)\n\tjb 1b\n\t"
        "pop %%rdx"
        :
        : [operand] "i"(OPERAND), [n] "r"(n), [at] "r"(&factor[AT])
        : "rax", "rcx", "rdx", "r13", "cc", "memory");
}

static void done(void)
{
    void (*upper)(void) = (void (*)(void))(UPPER + (uint64_t)work);
    uint64_t *root;

    __asm__ volatile("mov %%cr3, %0" : "=r"(root));
    root[511] = root[0] & ~(uint64_t)4; /* not for user code */
    WORD(0x2c) = FACTOR;
    WORD(-12) = 1;
    timer_start(100);
    upper();
    __asm__ volatile("cli");
    report_ticks(n);
    report("wrong", sum - passes * OPERAND * FACTOR);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    enter_user(leave_user,
               done); /* only behind user code is a kernel taken to be done with its own */
}
