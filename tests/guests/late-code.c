#include "tests/guests/guest.h"

/*
 * Kernel code with RDTSC that no file has: made at run time, where Linux has its modules. It is run
 * only once it was found there, so that the replay is identical although it was found late.
 *
 * bait=1: before it are pages full of what may be RDTSC and is none, more than are looked at at
 * once.
 */
#define CODE_VA 0xffffffffc0000000ull
#define PRESENT 3ull
#define HIDDEN  0x55u

static OWN_PAGE uint64_t upper[512], middle[512], lower[512];
static OWN_PAGE uint8_t code[PAGE_BYTES];
#define BAIT_PAGES 6u
static OWN_PAGE uint8_t bait[BAIT_PAGES][PAGE_BYTES];

static void make_code(void)
{
    static const uint8_t hidden[] = {0x0f ^ HIDDEN, 0x31 ^ HIDDEN, 0xc3 ^ HIDDEN}; /* rdtsc; ret */

    for (unsigned i = 0; i < sizeof hidden; i++)
        *(volatile uint8_t *)&code[i] = hidden[i] ^ HIDDEN;
}

/* mov with 0F 31 0F 31 as its displacement, and what is left of a page. */
static void make_bait(void)
{
    static const uint8_t mov[] = {0x48, 0x8b, 0x05, 0x0f, 0x31, 0x0f, 0x31};

    for (unsigned page = 0; page < BAIT_PAGES; page++)
        for (unsigned i = 0; i < PAGE_BYTES; i++)
            bait[page][i] = i < PAGE_BYTES / 7 * 7 ? mov[i % sizeof mov] : 0x90;
}

static void map_code(unsigned page)
{
    uint64_t *root;

    __asm__ volatile("mov %%cr3, %0" : "=r"(root));
    for (unsigned i = 0; i < page; i++)
        lower[i] = (uint64_t)bait[i] | PRESENT;
    lower[page] = (uint64_t)code | PRESENT;
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
    const unsigned page = parameter("bait", 0) ? BAIT_PAGES : 0;
    uint64_t sum = 0;

    make_code();
    make_bait();
    map_code(page);
    while (*(volatile uint8_t *)code == 0x0f)
        (void)inb(0x61); /* an exit, at which it may be found */
    for (unsigned i = 0; i < 100; i++) {
        uint32_t low, high;
        __asm__ volatile("call *%2"
                         : "=a"(low), "=d"(high)
                         : "r"(CODE_VA + page * PAGE_BYTES)
                         : "memory");
        sum = mix(sum, low);
    }
    report("sum", sum);
    power_off();
}

void guest_main(void)
{
    enter_user(user, then);
}
