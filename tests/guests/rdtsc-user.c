#include "tests/guests/guest.h"

/* RDTSC at CPL3, which raises #GP (CR4.TSD) and is emulated without the guest's handler; prefix=1:
 * with prefixes that change nothing, up to 15 bytes. */
static uint64_t sum;

/* The program writes them itself: dittovm would take them for the kernel's (rdtsc_user()). */
#define PREFIXES_MAX 13u
static const uint8_t prefixes[][PREFIXES_MAX] = {
    {0x48},
    {0x66, 0x48},
    {0x48, 0x66},
    {0xf3},
    {0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e, 0x2e},
};
static OWN_PAGE volatile uint8_t code[PAGE_BYTES];

static void write_rdtsc(const uint8_t *prefix)
{
    unsigned at = 0;

    while (at < PREFIXES_MAX && prefix[at]) {
        code[at] = prefix[at];
        at++;
    }
    code[at++] = 0x0f;
    code[at++] = 0x31;
    code[at++] = 0xc3; /* ret */
}

static void user_prefixed(void)
{
    for (unsigned i = 0; i < 20; i++)
        for (unsigned k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
            uint32_t low, high;
            write_rdtsc(prefixes[k]);
            __asm__ volatile("call *%2" : "=a"(low), "=d"(high) : "r"(code) : "memory");
            sum = mix(sum, (uint64_t)high << 32 | low);
        }
    leave_user();
}

static void user(void)
{
    for (unsigned i = 0; i < 200; i++)
        sum = mix(sum, rdtsc_user());
    leave_user();
}

static void done(void)
{
    report("sum", sum);
}

void guest_main(void)
{
    enter_user(parameter("prefix", 0) ? user_prefixed : user, done);
}
