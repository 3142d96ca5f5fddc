#include "tests/guests/guest.h"

#define TICKS  60
#define PASSES 2000
#define PAGES  600
/* More than are looked at for what changes; they lie behind the guest, of which the machine must
 * have 160 MiB. */
#define FAR       (32ull << 20)
#define FAR_PAGES 20000
/* Others, so many as are asked for, lie behind the guest, too. */
#define NEAR (8ull << 20)

/*
 * A loop within a loop, at CPL3. The inner one counts the same way each time, in a register; the
 * outer one's progress shows only in memory, where nothing that the inner loop's code names lies:
 * behind a pointer in a register (pointed=1), on the stack, where a function saves its caller's
 * registers (saved=1; at CPL0), or nowhere near one; or the inner one writes the same to many pages
 * each time (pages=1), or to more than are looked at (pages=2; at CPL0), or to N others (pages=N);
 * or it is far up the stack, behind return addresses and saved registers (deep=1).
 *
 * alone=N: so many passes of the outer loop, and no interrupt in them.
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

static uint64_t alone;

static void user_alone(void)
{
    __asm__ volatile("1:\nalone_outer:\n\tincq %[count]\n\t"
                     "mov %[passes], %%eax\n"
                     "2:\nalone_inner:\n\tdec %%eax\n\tjnz 2b\n\t"
                     "cmp %[n], %[count]\n\tjb 1b"
                     : [count] "+m"(outer.count)
                     : [n] "r"(alone), [passes] "i"(PASSES)
                     : "rax", "cc", "memory");
    leave_user();
}

/* As a benchmark does that calls the same function on the same data again and again: all that the
 * function works on is the same, too. */
static void saved_progress(void)
{
    uint64_t count = 0;

    __asm__ volatile("1:\n\tinc %[count]\n\t"
                     "push %[count]\n\t"
                     "xor %k[count], %k[count]\n\t"
                     "push %[count]\n\t"
                     "mov %[passes], %%eax\n"
                     "2:\n\tdec %%eax\n\tjnz 2b\n\t"
                     "pop %[count]\n\t"
                     "pop %[count]\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     : [count] "+r"(count)
                     : [n] "r"(n), [passes] "i"(PASSES)
                     : "rax", "cc", "memory");
    outer.count = count;
}

static OWN_PAGE uint8_t written[PAGES][PAGE_BYTES];

static uint64_t first_page = (uint64_t)written, pages = PAGES;

static void write_pages(void)
{
    __asm__ volatile("1:\n\tincq %[count]\n\t"
                     "mov %[pages], %%eax\n\t"
                     "mov %[first], %%rdx\n"
                     "2:\n\tmovb $1, (%%rdx)\n\t"
                     "add $4096, %%rdx\n\t"
                     "dec %%eax\n\tjnz 2b\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     : [count] "+m"(outer.count)
                     : [n] "r"(n), [pages] "r"((uint32_t)pages), [first] "r"(first_page)
                     : "rax", "rdx", "cc", "memory");
}

static void user_pages(void)
{
    write_pages();
    leave_user();
}

/*
 * As stress-ng's funccall: calls within calls, with the same arguments each time. What of the stack
 * changes in a moment is return addresses, as well as the count of the loop.
 */
static const volatile uint32_t *deep_count;

void deep_call(void);
__asm__("deep_leaf:\n\t"
        "mov $100, %eax\n"
        "1:\tdec %eax\n\tjnz 1b\n\t"
        "ret\n"
        "deep_call:\n\t"
        ".rept 3\n\t"
        "push %rdi\n\tpush %rsi\n\tpush %r8\n\tpush %r9\n\tpush %r10\n\tpush %r11\n\t"
        ".endr\n\t"
        "call deep_leaf\n\tcall deep_leaf\n\t"
        "push %rdi\n\tcall deep_leaf\n\tcall deep_leaf\n\t"
        "add $19 * 8, %rsp\n\t"
        "ret\n");

static void user_deep(void)
{
    uint32_t frame[8] = {0};

    deep_count = &frame[5];
    __asm__ volatile("1:\n\tincl %[count]\n\t"
                     "movabs $0x408975ec13a38830, %%rdi\n\t"
                     "lea 1(%%rdi), %%rsi\n\tlea 2(%%rdi), %%r8\n\tlea 3(%%rdi), %%r9\n\t"
                     "lea 4(%%rdi), %%r10\n\tlea 5(%%rdi), %%r11\n\t"
                     "call deep_call\n\t"
                     "push %%rdi\n\tcall deep_call\n\tpop %%rdi\n\t"
                     "cmp %[n], ticks(%%rip)\n\tjb 1b"
                     : [count] "+m"(frame[5])
                     : [n] "b"(n)
                     : "rax", "rdi", "rsi", "r8", "r9", "r10", "r11", "cc", "memory");
    outer.count = frame[5];
    leave_user();
}

static void mix_deep(const struct interrupted *found)
{
    (void)found;
    landed = mix(landed, deep_count ? *deep_count : 0); /* a tick may come before the loop */
}

static void mix_count(const struct interrupted *found)
{
    (void)found;
    landed = mix(landed, outer.count);
}

static void mix_saved(const struct interrupted *found)
{
    landed = mix(landed, *((const uint64_t *)found->rsp + 1));
}

static void done(void)
{
    report_ticks(n);
    report("count", outer.count);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    at_tick = parameter("saved", 0) ? mix_saved : parameter("deep", 0) ? mix_deep : mix_count;
    alone = parameter("alone", 0);
    if (alone)
        enter_user(user_alone, done);
    timer_start(parameter("pages", 0) ? 20 : 100); /* to come to many passes */
    if (parameter("saved", 0)) {
        saved_progress();
        done();
        return;
    }
    if (parameter("pages", 0) == 2) {
        first_page = FAR;
        pages = FAR_PAGES;
        write_pages();
        done();
        return;
    }
    if (parameter("pages", 0) > 2) {
        first_page = NEAR;
        pages = parameter("pages", 0);
    }
    enter_user(parameter("pages", 0)     ? user_pages
               : parameter("pointed", 0) ? user_pointed
               : parameter("deep", 0)    ? user_deep
                                         : user_global,
               done);
}
