#include "tests/guests/guest.h"

#define TICKS  200
#define DEVICE 0xd0000ff0u

extern const uint8_t behind_sti[];

static uint64_t too_early;

static void look(const struct interrupted *found)
{
    too_early += found->rip == (uint64_t)behind_sti;
}

static bool is_pending(void)
{
    outb(0x20, 0x0a); /* the 8259's requests */
    return inb(0x20) & 1;
}

/* An interrupt waits for a STI in front of an access to a device: it comes behind that, as a CPU
 * has it. */
void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS);

    at_tick = look;
    timer_start(1000);
    while (ticks < n) {
        __asm__ volatile("cli");
        while (!is_pending())
            ;
        __asm__ volatile("sti\n"
                         "behind_sti:\n\t"
                         "mov (%0), %%eax"
                         :
                         : "r"((uint64_t)DEVICE)
                         : "rax", "memory");
    }
    report_ticks(n);
    report("too early", too_early);
}
