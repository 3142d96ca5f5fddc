#include "tests/guests/guest.h"

#define TICKS          120
#define MXCSR_MASKS    0x1f80u
#define MXCSR_DAZ      (1u << 6)
#define MXCSR_ROUNDING 13
#define MXCSR_FTZ      (1u << 15)
#define STEPS          500000u /* of the map between two changes of MXCSR; some ms */

static uint64_t n, steps, sum, changes;

/*
 * Double arithmetic whose state lives in SSE registers and MXCSR only. The compiler uses general
 * registers alone (GUEST_FLAGS), so XMM0 to XMM5 belong to the assembly here from one statement to
 * the next, and no interrupt handler touches them.
 */
static void load_constants(void)
{
    static const uint64_t half = 0x3fe0000000000000, one = 0x3ff0000000000000,
                          chaotic = 0x400fae147ae147ae, /* 3.96 */
        tiny = 0x0010000000000000;                      /* the least that is not denormal */

    __asm__ volatile("movsd %0, %%xmm0\n\tmovsd %1, %%xmm1\n\tmovsd %2, %%xmm2\n\tmovsd %3, %%xmm3"
                     :
                     : "m"(half), "m"(one), "m"(chaotic), "m"(tiny));
}

/* x = 3.96 x (1 - x) in XMM0, `steps` times: one bit that is rounded otherwise changes all that
 * follow. Then x times a tiny number in XMM5, which is denormal, or flushed to 0. */
static void compute(void)
{
    uint64_t left = steps;

    __asm__ volatile("1:\n\t"
                     "movapd %%xmm1, %%xmm4\n\t"
                     "subsd %%xmm0, %%xmm4\n\t"
                     "mulsd %%xmm2, %%xmm0\n\t"
                     "mulsd %%xmm4, %%xmm0\n\t"
                     "dec %0\n\t"
                     "jnz 1b\n\t"
                     "movapd %%xmm0, %%xmm5\n\t"
                     "mulsd %%xmm3, %%xmm5\n\t"
                     "sqrtsd %%xmm5, %%xmm5\n\t"
                     "divsd %%xmm2, %%xmm5"
                     : "+r"(left)
                     :
                     : "cc");
}

static uint64_t mix_results(uint64_t with)
{
    uint64_t x, y;
    uint32_t mxcsr;

    __asm__ volatile("movq %%xmm0, %0\n\tmovq %%xmm5, %1\n\tstmxcsr %2"
                     : "=r"(x), "=r"(y), "=m"(mxcsr));
    return mix(mix(mix(with, x), y), mxcsr);
}

static void mix_landing(const struct interrupted *found)
{
    (void)found;
    landed = mix_results(landed);
}

static void work(void)
{
    for (; ticks < n; changes++) {
        uint32_t mxcsr = MXCSR_MASKS | (changes & 3) << MXCSR_ROUNDING |
                         (changes & 4 ? MXCSR_FTZ : 0) | (changes & 8 ? MXCSR_DAZ : 0);
        __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
        compute();
        sum = mix_results(sum);
    }
}

static void done(void)
{
    report_ticks(n);
    report("changes of MXCSR", changes);
    report("sum", sum);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    steps = parameter("steps", STEPS);
    sse_on();
    load_constants();
    at_tick = mix_landing;
    timer_start(100);
    at_chosen_level(work, done);
}
