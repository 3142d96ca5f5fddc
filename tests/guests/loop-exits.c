#include "tests/guests/guest.h"

/*
 * Functions that are called again and again, each with something that comes out of the guest or
 * into its kernel in its middle: what gdb counts the calls of inside the guest, on the way back.
 * Each has the number of its call in `call`. The interrupts that STI and POPF let in are of a
 * timer.
 */
static uint64_t n;
volatile uint64_t call;

/* The patch level is an MSR of ours; at 0xd0000000 there is neither memory nor a device. naked: the
 * first instruction is the function's. */
#define FUNCTION(name, text)                                                                       \
    __attribute__((naked, noinline)) static void name(void)                                        \
    {                                                                                              \
        __asm__ volatile("nop\n\t" text "\n\tret");                                                \
    }

FUNCTION(reads_msr, "mov $0x8b, %ecx\n\trdmsr\n\tinc %rax")
FUNCTION(stores_mmio, "mov $0xd0000000, %eax\n\tmov %rax, 8(%rax)\n\tinc %rax")
FUNCTION(adds_mmio, "mov $0xd0000000, %eax\n\tadd %rax, 8(%rax)\n\tinc %rax")
FUNCTION(lets_in_by_sti, "sti\n\tpush $1\n\tpop %rax\n\tcli")
FUNCTION(lets_in_by_popf, "pushf\n\torl $0x200, (%rsp)\n\tpopf\n\tpush $1\n\tpop %rax\n\tcli")
/* Flags that a comparison would change. Its #GP's handler goes on behind the store. */
FUNCTION(faults,
         "mov $1, %eax\n\tror $1, %rax\n\tror $1, %rax\n\tfaults_at: mov %rax, (%rax)\n\tinc %rax")
/* As in rdtsc_user(). */
FUNCTION(reads_tsc, "mov $1, %eax\n\tror $1, %rax\n\tror $1, %rax\n\tcall 1f + 1\n\tjmp 2f\n"
                    "1:\t.byte 0x3d, 0x0f, 0x31, 0xc3, 0x90\n2:\tinc %rax")

struct interrupt_frame {
    uint64_t rip, cs, rflags, rsp, ss;
};

static uint64_t faulted, elsewhere;
extern const char faults_at[];

__attribute__((interrupt)) static void general_protection(struct interrupt_frame *frame,
                                                          unsigned long code)
{
    (void)code;
    faulted++;
    elsewhere += frame->rip != (uint64_t)faults_at;
    frame->rip += 3;
}

static void calls(void (*function)(void))
{
    for (call = 0; call < n; call++)
        __asm__ volatile("call *%0" : : "r"(function) : "rax", "rcx", "rdx", "cc", "memory");
}

/* The recorder finds at an exit that an interrupt is waiting, and asks for the window. */
static void calls_behind_exits(void (*function)(void))
{
    for (call = 0; call < n; call++) {
        for (volatile unsigned i = 0; i < 300; i++)
            ;
        outb(0x80, 0);
        __asm__ volatile("call *%0" : : "r"(function) : "rax", "cc", "memory");
    }
}

static void user(void)
{
    calls(faults);
    calls(reads_tsc);
    leave_user();
}

static void done(void)
{
    report("faults", faulted);
    report("of them elsewhere", elsewhere);
    put("done\n");
}

void guest_main(void)
{
    n = parameter("n", 2000);
    set_handler(13, (void (*)(struct interrupt_frame *))(uintptr_t)general_protection);
    load_idt();
    calls(reads_msr);
    calls(stores_mmio);
    calls(adds_mmio);
    timer_start(1000);
    __asm__ volatile("cli");
    calls_behind_exits(lets_in_by_sti);
    calls_behind_exits(lets_in_by_popf);
    enter_user(user, done);
}
