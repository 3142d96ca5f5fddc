#include "tests/guests/guest.h"

#define TICKS  30
#define DEVICE 0xd0000ff0u
/* Behind what is mapped. */
#define NOTHING (5ull << 30)
/* MOVSB */
#define LENGTH 1

struct interrupt_frame {
    uint64_t rip, cs, rflags, rsp, ss;
};

static uint64_t faults;

__attribute__((interrupt)) static void page_fault(struct interrupt_frame *frame, unsigned long code)
{
    (void)code;
    frame->rip += LENGTH;
    faults++;
}

/* Nearly each exit is a read of a device by an instruction that then cannot store: an interrupt
 * that is let in there must not be lost to the page fault. */
void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS);

    set_handler(14, (void (*)(struct interrupt_frame *))(uintptr_t)page_fault);
    timer_start(100);
    while (ticks < n) {
        uint64_t from = DEVICE, to = NOTHING;
        __asm__ volatile("movsb" : "+S"(from), "+D"(to) : : "memory");
    }
    report_ticks(n);
    report("there were faults", faults > 0);
}
