#include "tests/guests/guest.h"

#define TICKS 40
/* Breakpoint 0, global, a write of 8 bytes. */
#define DR7_WRITE_8 ((1ull << 1) | (1ull << 16) | (2ull << 18))

/* The guest's own debug registers: each write of a word that it watches is a #DB, whatever a
 * recorder or a replay does with the CPU's. */
static uint64_t n, count, passes, hits, others;
static volatile uint64_t watched;

__attribute__((interrupt)) static void debug_exception(struct interrupt_frame *frame)
{
    uint64_t dr6;

    (void)frame;
    __asm__ volatile("mov %%dr6, %0" : "=r"(dr6));
    if (dr6 & 1)
        hits++;
    else
        others++;
    __asm__ volatile("mov %0, %%dr6" : : "r"(0xffff0ff0ull));
}

static void work(void)
{
    for (; ticks < n; passes++) {
        /* So long that the places of a pass are told apart without counting. */
        __asm__ volatile(".rept 100000\n\t"
                         "inc %0\n\t"
                         ".endr"
                         : "+r"(count)
                         :
                         : "cc");
        watched = passes;
    }
}

static void done(void)
{
    report_ticks(n);
    report("passes that a #DB came for", passes == hits);
    report("other #DBs", others);
    report("passes", passes);
    report("hits", hits);
}

void guest_main(void)
{
    n = parameter("ticks", TICKS);
    set_handler(1, debug_exception);
    load_idt();
    __asm__ volatile("mov %0, %%dr0\n\tmov %1, %%dr7" : : "r"(&watched), "r"(DR7_WRITE_8));
    timer_start(100);
    at_chosen_level(work, done);
}
