#include "tests/guests/guest.h"

#define TICKS 30

/*
 * An interrupt that waited for STI comes in a loop behind it: each pass begins where the byte
 * before is the STI. The handler leads out of the loop.
 */
static void leave_loop(const struct interrupted *found)
{
    const uint8_t *at = (const uint8_t *)found->rip;

    if (at[0] == 0xeb && at[1] == 0xfe)
        ((struct interrupted *)found)->rip += 2;
}

static bool is_pending(void)
{
    outb(0x20, 0x0a); /* the 8259's requests */
    return inb(0x20) & 1;
}

void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS);
    uint64_t reads = 0;

    at_tick = leave_loop;
    timer_start(100);
    while (ticks < n) {
        __asm__ volatile("cli");
        while (!is_pending())
            reads++;
        __asm__ volatile("sti\n"
                         "1:\tjmp 1b"
                         :
                         :
                         : "memory");
    }
    report_ticks(n);
    report("reads", reads);
}
