#include "tests/guests/guest.h"

#define TICKS       120
#define STACK_BYTES (4u << 20)
#define ARGUMENT    9 /* the depth is 2^(ARGUMENT + 3) calls; at least 2 */

/*
 * Deep recursion; at CPL0 with interrupts on the same stack. What the CPU is doing shows in
 * thousands of frames only: registers, and the last few frames, are the same again and again.
 */
static __attribute__((aligned(16))) uint8_t deep_stack[STACK_BYTES];
static uint64_t n, argument, rounds, sum, deepest;

static __attribute__((noipa, optimize("no-optimize-sibling-calls"))) uint64_t ackermann(uint64_t m,
                                                                                        uint64_t k)
{
    if (m == 0)
        return k + 1;
    if (k == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, k - 1));
}

static void mix_stack(const struct interrupted *found)
{
    const uint64_t top = (uint64_t)(deep_stack + sizeof deep_stack);
    uint64_t with = landed, depth = top - found->rsp;

    if (depth > sizeof deep_stack)
        return; /* it runs on another stack just before and behind */
    for (uint64_t at = found->rsp; at < top; at += sizeof with)
        with = mix(with, *(const uint64_t *)at);
    landed = with;
    if (depth > deepest)
        deepest = depth;
}

static __attribute__((used)) void recurse(void)
{
    for (; ticks < n; rounds++)
        sum = mix(sum, ackermann(3, argument - rounds % 3));
}

static void work(void)
{
    uint64_t top = (uint64_t)(deep_stack + sizeof deep_stack);

    /* RBX is kept by the callee, so it brings the old stack back. */
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %0, %%rsp\n\tcall recurse\n\tmov %%rbx, %%rsp"
                     : "+r"(top)
                     :
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc",
                       "memory");
}

static void done(void)
{
    report_ticks(n);
    report("rounds", rounds);
    report("sum", sum);
    report("bytes of stack at an interrupt, at most", deepest);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    argument = parameter("argument", ARGUMENT);
    at_tick = mix_stack;
    timer_start(100);
    at_chosen_level(work, done);
}
