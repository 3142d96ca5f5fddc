#include "tests/guests/guest.h"

/*
 * What Linux does for a program that wants SIGSEGV for RDTSC (prctl(PR_SET_TSC)): CR4.TSD is set
 * while that one runs, and cleared by an exclusive or for the next. The guest finds in CR4 what it
 * has written, RDTSC faults when it wants that, and is the recorder's all the same when it does
 * not.
 */
#define TSD      4ull
#define RESERVED (1ull << 15)
#define READS    50

struct interrupt_frame {
    uint64_t rip, cs, rflags, rsp, ss;
};

static uint64_t sum, seen = 1, user_faults, kernel_faults;
static unsigned round;

static uint64_t read_cr4(void)
{
    uint64_t value;

    __asm__ volatile("mov %%cr4, %0" : "=r"(value));
    return value;
}

static void write_cr4(uint64_t value)
{
    __asm__ volatile("mov %0, %%cr4" : : "r"(value));
}

/* The same with registers that need a prefix. */
static void toggle_tsd(void)
{
    __asm__ volatile("mov %%cr4, %%r10\n\t"
                     "xor $4, %%r10\n\t"
                     "mov %%r10, %%cr4"
                     :
                     :
                     : "r10", "cc");
}

__attribute__((interrupt)) static void on_gp(struct interrupt_frame *frame, uint64_t error)
{
    (void)error;
    if (frame->cs & 3) {
        user_faults++;
        frame->rip += 2; /* RDTSC */
    } else {
        kernel_faults++;
        frame->rip += 3; /* MOV to CR4 */
    }
}

static void user(void)
{
    for (unsigned i = 0; i < READS; i++)
        sum = mix(sum, rdtsc_user());
    leave_user();
}

/* One digit after the other, from 1 on. */
static void note(uint64_t digit)
{
    seen = seen * 10 + digit;
}

static void note_tsd(void)
{
    note((read_cr4() & TSD) != 0);
}

static void next(void)
{
    note(user_faults / READS);
    if (++round == 4) {
        report("seen", seen);
        report("sum", sum);
        power_off();
    }
    toggle_tsd();
    note_tsd();
    if (round == 2) {
        const uint64_t before = read_cr4();
        write_cr4(before | RESERVED);
        note(kernel_faults == 1 && read_cr4() == before);
    }
    enter_user(user, next);
}

void guest_main(void)
{
    set_handler(13, (void (*)(struct interrupt_frame *))(uintptr_t)on_gp);
    note_tsd();
    write_cr4(read_cr4() & ~TSD);
    enter_user(user, next);
}
