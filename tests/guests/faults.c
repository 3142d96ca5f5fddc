#include "tests/guests/guest.h"

#define TICKS  30
#define PASSES 100000
/* DIV %RCX */
#define LENGTH 3

struct interrupt_frame {
    uint64_t rip, cs, rflags, rsp, ss;
};

static volatile uint64_t faults, flags;

__attribute__((interrupt)) static void divide_error(struct interrupt_frame *frame)
{
    frame->rip += LENGTH;
    flags |= frame->rflags;
    faults++;
}

/* The CPU itself writes most of what changes in memory: frames of faults, with RFLAGS. The loops
 * are there to be interrupted in: a comparison inside the guest ends at an instruction that faults.
 */
void guest_main(void)
{
    const uint64_t n = parameter("ticks", TICKS), least = parameter("faults", 1);

    set_handler(0, divide_error);
    load_idt();
    if (n)
        timer_start(100);
    while (ticks < n || faults < least) {
        uint64_t passes = PASSES, divisor = 0, quotient = 1, rest = 0;
        __asm__ volatile("1: dec %0\n"
                         "jnz 1b\n"
                         "div %3"
                         : "+r"(passes), "+a"(quotient), "+d"(rest)
                         : "c"(divisor)
                         : "cc");
    }
    report_ticks(n);
    report("there were faults", faults > 0);
}
