#include "tests/guests/guest.h"

#define TICKS 60

/*
 * A loop whose progress shows in memory only, and only in a function that it calls, by way of a
 * pointer if indirect=1: where the loop itself stands, no register, no flag and nothing on the
 * stack tells one pass from another. At CPL3.
 */
static uint64_t n, indirect;
static uint64_t count __attribute__((used));
void bump(void);

__asm__(".text\nbump:\n\tincq count(%rip)\n\tret\n");

#define UNTIL_N_TICKS(call)                                                                        \
    __asm__ volatile("1:\n\t" call "\n\txor %%eax, %%eax\n\tadd $1, %%eax\n\t"                     \
                     "lea 5(%%rax), %%edx\n\txor %%eax, %%eax\n\t"                                 \
                     "cmp %0, ticks(%%rip)\n\tjb 1b"                                               \
                     :                                                                             \
                     : "r"(n), "r"(function)                                                       \
                     : "rax", "rdx", "cc", "memory")

static void user(void)
{
    void (*function)(void) = bump;

    if (indirect)
        UNTIL_N_TICKS("call *%1");
    else
        UNTIL_N_TICKS("call bump");
    leave_user();
}

static void mix_count(const struct interrupted *found)
{
    (void)found;
    landed = mix(landed, count);
}

static void done(void)
{
    report_ticks(n);
    report("count", count);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    indirect = parameter("indirect", 0);
    at_tick = mix_count;
    timer_start(100);
    enter_user(user, done);
}
