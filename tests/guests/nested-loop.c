#include "tests/guests/guest.h"

#define TICKS  60
#define PASSES 2000

/*
 * A loop within a loop, at CPL3. The inner one counts the same way each time, in a register; the
 * outer one's progress shows only in memory, where nothing that the inner loop's code names lies:
 * behind a pointer in a register (pointed=1), or nowhere near one.
 */
static uint64_t n;
static struct {
    OWN_PAGE uint64_t count;
} outer;

static void user_pointed(void)
{
    __asm__ volatile("1:\n\tincq (%[count])\n\t"
                     "mov %[passes], %%eax\n"
                     "2:\n\tdec %%eax\n\tjnz 2b\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     :
                     : [count] "r"(&outer.count), [n] "r"(n), [passes] "i"(PASSES)
                     : "rax", "cc", "memory");
    leave_user();
}

static void user_global(void)
{
    __asm__ volatile("1:\n\tincq %[count]\n\t"
                     "mov %[passes], %%eax\n"
                     "2:\n\tdec %%eax\n\tjnz 2b\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     : [count] "+m"(outer.count)
                     : [n] "r"(n), [passes] "i"(PASSES)
                     : "rax", "cc", "memory");
    leave_user();
}

static void mix_count(const struct interrupted *found)
{
    (void)found;
    landed = mix(landed, outer.count);
}

static void done(void)
{
    report_ticks(n);
    report("count", outer.count);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    at_tick = mix_count;
    timer_start(100);
    enter_user(parameter("pointed", 0) ? user_pointed : user_global, done);
}
