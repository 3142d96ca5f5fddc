#include "tests/guests/smp.h"

/*
 * RDTSC at CPL3 on one CPU, while another one writes to the page of that code, or with "table=1" of
 * the table that maps it: who comes to the trap gives the page away before it is served.
 */
#define READS 3000
#define HERE  (1ull << 39)
#define TABLE 0x27ull /* present, writable, user, accessed */
#define LEAF  (TABLE | 0x40)

static OWN_PAGE uint64_t code[512], pointers[512], directory[512], leaves[512];
static uint64_t sum, reads;

static void write_for_ever(unsigned cpu)
{
    volatile uint64_t *at = parameter("table", 0) ? &leaves[511] : &code[511];

    use_own_page_tables(cpu);
    for (;;) {
        *at += 2; /* never a present entry */
        inb(0x3fd);
    }
}

static void user(unsigned cpu)
{
    uint64_t all = cpu, n;
    uint32_t low, high;

    for (n = 0; n < READS; n++) {
        __asm__ volatile("call *%2" : "=a"(low), "=d"(high) : "r"(HERE) : "memory");
        all = mix(all, (uint64_t)high << 32 | low);
    }
    sum = all;
    reads = n;
    leave_user();
}

static void done(void)
{
    report("reads", reads);
    report("sum", sum);
}

void guest_main(void)
{
    volatile uint64_t *root;

    code[0] = 0xc3310f; /* rdtsc; ret: as data, so that nobody replaces it */
    leaves[0] = (uint64_t)code | LEAF;
    directory[0] = (uint64_t)leaves | TABLE;
    pointers[0] = (uint64_t)directory | TABLE;
    prepare_user(done); /* its output is time for the hook */
    __asm__ volatile("mov %%cr3, %0" : "=r"(root));
    root[1] = (uint64_t)pointers | TABLE;
    start_cpus(2, write_for_ever);
    enter_user_on(0, user);
}
