#include "tests/guests/guest.h"

#define TICKS  60
#define PASSES 2000
#define PAGES  600

/*
 * A loop within a loop, at CPL3. The inner one counts the same way each time, in a register; the
 * outer one's progress shows only in memory, where nothing that the inner loop's code names lies:
 * behind a pointer in a register (pointed=1), or nowhere near one; or the inner one writes the same
 * to many pages each time (pages=1).
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

static OWN_PAGE uint8_t written[PAGES][PAGE_BYTES];

static void user_pages(void)
{
    __asm__ volatile("1:\n\tincq %[count]\n\t"
                     "mov %[pages], %%eax\n\t"
                     "lea %[written], %%rdx\n"
                     "2:\n\tmovb $1, (%%rdx)\n\t"
                     "add $4096, %%rdx\n\t"
                     "dec %%eax\n\tjnz 2b\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     : [count] "+m"(outer.count), [written] "=m"(written)
                     : [n] "r"(n), [pages] "i"(PAGES)
                     : "rax", "rdx", "cc", "memory");
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
    timer_start(parameter("pages", 0) ? 20 : 100); /* to come to many passes */
    enter_user(parameter("pages", 0)     ? user_pages
               : parameter("pointed", 0) ? user_pointed
                                         : user_global,
               done);
}
