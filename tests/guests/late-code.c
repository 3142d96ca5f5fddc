#include "tests/guests/guest.h"

/*
 * Kernel code with RDTSC that no file has: made at run time, where Linux has its modules. It is run
 * only once it was found there, so that the replay is identical although it was found late.
 */
#define CODE_VA 0xffffffffc0000000ull
#define PRESENT 3ull
#define HIDDEN  0x55u

static OWN_PAGE uint64_t upper[512], middle[512], lower[512];
static OWN_PAGE uint8_t code[PAGE_BYTES];

static void make_code(void)
{
    static const uint8_t hidden[] = {0x0f ^ HIDDEN, 0x31 ^ HIDDEN, 0xc3 ^ HIDDEN}; /* rdtsc; ret */

    for (unsigned i = 0; i < sizeof hidden; i++)
        *(volatile uint8_t *)&code[i] = hidden[i] ^ HIDDEN;
}

static void map_code(void)
{
    uint64_t *root;

    __asm__ volatile("mov %%cr3, %0" : "=r"(root));
    lower[0] = (uint64_t)code | PRESENT;
    middle[0] = (uint64_t)lower | PRESENT;
    upper[511] = (uint64_t)middle | PRESENT;
    root[511] = (uint64_t)upper | PRESENT;
}

static void user(void)
{
    leave_user();
}

static void then(void)
{
    uint64_t sum = 0;

    make_code();
    map_code();
    while (*(volatile uint8_t *)code == 0x0f)
        (void)inb(0x61); /* an exit, at which it may be found */
    for (unsigned i = 0; i < 100; i++) {
        uint32_t low, high;
        __asm__ volatile("call *%2" : "=a"(low), "=d"(high) : "r"(CODE_VA) : "memory");
        sum = mix(sum, low);
    }
    report("sum", sum);
    power_off();
}

void guest_main(void)
{
    enter_user(user, then);
}
