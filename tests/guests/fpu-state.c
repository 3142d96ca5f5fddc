#include "tests/guests/guest.h"

/* All masked, rounded towards zero, with what an inexact result left behind. */
#define MXCSR 0x7fa0u
/* Sync points between setting all up and looking at it. */
#define LINES 40

/* What FXSAVE stores in 64-bit code. */
static struct {
    uint16_t fcw, fsw;
    uint8_t ftw, reserved;
    uint16_t fop;
    uint64_t fip, fdp;
    uint32_t mxcsr, mxcsr_mask;
    uint64_t st[8][2], xmm[16][2];
    uint8_t rest[96];
} __attribute__((aligned(16))) area;
_Static_assert(sizeof area == 512, "what FXSAVE stores");

/* x87 and SSE registers keep what they have while nobody looks: a replay, or a machine, that begins
 * in between must have it all. */
void guest_main(void)
{
    static const uint64_t first = 0x123456789abcdef0, last = 0xfedcba9876543210;
    static const uint32_t mxcsr = MXCSR;
    static uint64_t number = 0x400921fb54442d18; /* 3.14... */
    uint64_t sum = 0;

    sse_on();
    __asm__ volatile("fninit\n\tfld1\n\tfldl %0\n\tfstl %0" : "+m"(number));
    __asm__ volatile("movq %0, %%xmm0\n\tmovq %1, %%xmm15\n\tldmxcsr %2"
                     :
                     : "m"(first), "m"(last), "m"(mxcsr));
    for (unsigned i = 0; i < LINES; i++)
        outb(0x80, (uint8_t)i);
    __asm__ volatile("fxsave64 %0" : "=m"(area));
    report("mxcsr", area.mxcsr);
    report("xmm0", area.xmm[0][0]);
    report("xmm15", area.xmm[15][0]);
    report("st0", area.st[0][0]);
    report("last x87 instruction", area.fip);
    report("last x87 operand", area.fdp);
    for (unsigned i = 0; i < 8; i++)
        sum = mix(mix(sum, area.st[i][0]), area.st[i][1]);
    for (unsigned i = 0; i < 16; i++)
        sum = mix(mix(sum, area.xmm[i][0]), area.xmm[i][1]);
    report("sum", mix(mix(mix(mix(sum, area.fcw), area.fsw), area.ftw), area.fop));
}
