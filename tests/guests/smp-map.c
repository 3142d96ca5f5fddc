#include "tests/guests/smp.h"

#define PAGES       24
#define VECTOR_PF   14
#define PTE_PRESENT 1ull
#define PTE_WRITE   2ull
#define HERE        (1ull << 39) /* what the second entry of the root leads to */

/*
 * Threads of a process that race for page-table entries: the first CPU makes an entry for one page
 * after the other, and the second one reads each page, over and over, until that no longer raises a
 * page fault. How often it did is the schedule's doing, and is the same in each replay.
 */
static OWN_PAGE uint64_t root[512], pointers[512], directory[512], leaves[512];
/* The odd counter alone could be an entry of a page table, whose Accessed and Dirty bits do not
 * count (mmu/digest.c): the other word could not. */
static OWN_PAGE struct {
    volatile uint64_t count, no_entry;
} faults = {.no_entry = UINT64_MAX};
static OWN_PAGE volatile uint64_t done;
static volatile uint64_t order;

static __attribute__((interrupt)) void on_page_fault(struct interrupt_frame *frame, uint64_t error)
{
    (void)frame;
    (void)error;
    faults.count++;
    for (volatile unsigned i = 0; i < 100000; i++)
        continue;
}

static uint64_t entry(const void *table)
{
    return (uint64_t)table | PTE_PRESENT | PTE_WRITE;
}

static void use_tables(void)
{
    __asm__ volatile("mov %0, %%cr3" : : "r"(root) : "memory");
}

static void read_all(unsigned cpu)
{
    (void)cpu;
    load_idt();
    use_tables();
    for (uint64_t page = 0; page < PAGES; page++) {
        order = mix(order, *(volatile uint64_t *)(HERE + page * PAGE_BYTES));
        order = mix(order, faults.count);
    }
    done = 1;
}

void guest_main(void)
{
    const uint64_t passes = parameter("passes", 20000), *old;
    static OWN_PAGE uint64_t data[512];

    __asm__ volatile("mov %%cr3, %0" : "=r"(old));
    for (unsigned i = 0; i < 512; i++)
        root[i] = old[i];
    root[1] = entry(pointers);
    pointers[0] = entry(directory);
    directory[0] = entry(leaves);
    data[0] = 42;
    set_handler(VECTOR_PF, (void (*)(struct interrupt_frame *))(uint64_t)on_page_fault);
    use_tables();
    start_cpus(2, read_all);
    for (uint64_t page = 0; page < PAGES; page++) {
        for (volatile uint64_t i = 0; i < passes; i++)
            continue;
        ((volatile uint64_t *)leaves)[page] = entry(data);
    }
    while (!done)
        pause();
    report("mapped", PAGES);
    report("faults", faults.count);
    report("order", order);
}
