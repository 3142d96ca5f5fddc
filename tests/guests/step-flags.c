#include "tests/guests/guest.h"

#define TICKS 60
/* Longer than an interrupt waits for an exit. */
#define SPINS 60000u

struct interrupt_frame {
    uint64_t rip, cs, rflags, rsp, ss;
};

#define TF     0x100u
#define CR0_NE (1u << 5)

static uint64_t n, seen;

static void note(uint64_t flags)
{
    seen += (flags & TF) != 0;
}

/*
 * Where an interrupt comes that waited for a STI, and where the byte before is only that of one
 * (mov %edi, %ebx), the recorder makes a step. What is pushed then, or by an exception there, must
 * have no TF.
 */
static void behind_sti(void)
{
    while (ticks < n) {
        uint64_t flags;
        __asm__ volatile("cli");
        for (volatile unsigned i = 0; i < SPINS; i++)
            ;
        __asm__ volatile("sti\n\tpushfq\n\tpop %0" : "=r"(flags) : : "memory");
        note(flags);
        __asm__ volatile("cli");
        for (volatile unsigned i = 0; i < SPINS; i++)
            ;
        __asm__ volatile("sti\n\tmov %%edi, %%ebx\n\tpushfq\n\tpop %0"
                         : "=r"(flags)
                         :
                         : "rbx", "memory");
        note(flags);
    }
}

/* Behind this STI nobody is let in: the CLI is executed in its shadow. */
static void never_lets_in(void)
{
    for (unsigned i = 0; i < 20000; i++)
        __asm__ volatile("cli\n\tsti\n\tcli\n\tnop" : : : "memory");
    __asm__ volatile("sti");
}

__attribute__((interrupt)) static void floating_point(struct interrupt_frame *frame)
{
    note(frame->rflags);
    __asm__ volatile("fnclex");
}

/* Division by zero is no x87 exception that is masked: FWAIT raises it. */
static void with_exceptions(void)
{
    static uint16_t unmasked = 0x37b;
    uint64_t cr0;

    __asm__ volatile("mov %%cr0, %0" : "=r"(cr0));
    __asm__ volatile("mov %0, %%cr0" : : "r"(cr0 | CR0_NE));
    UNTIL_TICKS(
        2 * n,
        "fninit\n\tfldcw %[cw]\n\tfld1\n\tfldz\n\tfdivrp\n\tfwait\n\tfnclex", [cw] "+m"(unmasked));
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    sse_on();
    set_handler(16, floating_point);
    timer_start(100);
    behind_sti();
    never_lets_in();
    with_exceptions();
    report("TF was seen", seen);
    report_ticks(2 * n);
}
