#include "tests/guests/guest.h"

/*
 * What no well-meaning guest does, one kind a run (a name on the command line with =1):
 * instructions on what is no memory, tables that lie nowhere, every port and register there is. The
 * machine must go on as real ones do, or end; dittovm must say how it ended, and replay that.
 */
#define DEVICES 0xc0000000ull /* the first BAR */
#define NOTHING 0xd0000000ull
#define ROM     0xf0000ull
#define MIB     (1ull << 20)

#define PTE_ALL   0x3ull
#define PTE_LARGE 0x80ull

static uint64_t sum;
static OWN_PAGE uint8_t memory[4 * PAGE_BYTES];

static uint64_t end_of_ram(void)
{
    return parameter("mib", 32) * MIB;
}

/* ---- faults: the instruction is given up, and counted ---- */

static uint64_t faults;
uint64_t resume_at;

#define FAULT(name, pop)                                                                           \
    __attribute__((naked)) static void name(void)                                                  \
    {                                                                                              \
        __asm__ volatile(pop "pushq %rax\n\t"                                                      \
                             "movq resume_at(%rip), %rax\n\t"                                      \
                             "movq %rax, 8(%rsp)\n\t"                                              \
                             "popq %rax\n\t"                                                       \
                             "iretq");                                                             \
    }
FAULT(on_fault, "")
FAULT(on_fault_with_error, "addq $8, %rsp\n\t")

static void take_faults(void)
{
    static const uint8_t with_error[] = {10, 11, 12, 13, 14, 17};

    for (unsigned vector = 0; vector < 32; vector++)
        if (vector != 8)
            set_handler(vector, (void (*)(struct interrupt_frame *))on_fault);
    for (unsigned i = 0; i < sizeof with_error; i++)
        set_handler(with_error[i], (void (*)(struct interrupt_frame *))on_fault_with_error);
    load_idt();
}

/* One instruction, or what it did not come to. */
#define TRY(instruction, ...)                                                                      \
    do {                                                                                           \
        uint64_t done = 0;                                                                         \
        __asm__ volatile("leaq 1f(%%rip), %%r15\n\t"                                               \
                         "movq %%r15, resume_at(%%rip)\n\t" instruction "\n\t"                     \
                         "movl $1, %k[done]\n"                                                     \
                         "1:"                                                                      \
                         : [done] "+r"(done)__VA_OPT__(, ) __VA_ARGS__                             \
                         : "r15", "memory", "cc");                                                 \
        faults += !done;                                                                           \
    } while (0)

/* ---- memory that is none ---- */

static void touch(uint64_t at)
{
    uint64_t rdi, rcx, rsi, rax = 0;

    rdi = at, rcx = 20;
    TRY("rep insb", "+D"(rdi), "+c"(rcx) : "d"(0x61));
    rdi = at + 1, rcx = 3;
    TRY("rep insl", "+D"(rdi), "+c"(rcx) : "d"(0x61));
    rsi = at, rcx = 20;
    TRY("rep outsb", "+S"(rsi), "+c"(rcx) : "d"(0x80));
    rsi = at, rdi = at + 64, rcx = 9;
    TRY("rep movsq", "+S"(rsi), "+D"(rdi), "+c"(rcx) :);
    rsi = at + 3, rdi = (uint64_t)memory, rcx = 9;
    TRY("rep movsw", "+S"(rsi), "+D"(rdi), "+c"(rcx) :);
    rdi = at, rcx = 33;
    TRY("rep stosb", "+D"(rdi), "+c"(rcx), "+a"(rax) :);
    rdi = at, rcx = 33;
    TRY("repe scasb", "+D"(rdi), "+c"(rcx), "+a"(rax) :);
    TRY("lock cmpxchgq %%rcx, (%%rdi)", "+D"(at), "+a"(rax) : "c"(7ull));
    TRY("lock incq (%%rdi)", "+D"(at) :);
    TRY("xchgq %%rax, (%%rdi)", "+D"(at), "+a"(rax) :);
    TRY("btsq %%rcx, (%%rdi)", "+D"(at) : "c"(1000ull));
    sum = mix(mix(sum, rax), rcx);
}

/* Across the ends of RAM too: half of an access is to memory. */
static void strings(void)
{
    const uint64_t edges[] = {DEVICES, NOTHING, ROM, end_of_ram(), 4ull << 30};

    for (unsigned i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        touch(edges[i]);
        if (edges[i] != ROM)
            touch(edges[i] - 5);
    }
}

/* The state of the FPU, and vectors: KVM's emulator may not know them. */
static void vectors(void)
{
    uint64_t at = parameter("at", NOTHING);

    TRY("fxsaveq (%%rdi)", "+D"(at) :);
    TRY("fxrstorq (%%rdi)", "+D"(at) :);
    TRY("movups (%%rdi), %%xmm0", "+D"(at) :);
    TRY("movups %%xmm0, (%%rdi)", "+D"(at) :);
    TRY("fnstenv (%%rdi)", "+D"(at) :);
}

static void unknown_vector(void)
{
    uint64_t at = NOTHING;

    TRY("paddd (%%rdi), %%xmm0", "+D"(at) :);
}

/* ---- every register and port ---- */

static void msr(uint32_t number)
{
    uint32_t low = 0, high = 0;

    TRY("rdmsr", "+a"(low), "+d"(high) : "c"(number));
    sum = mix(sum, low | (uint64_t)high << 32);
    TRY("wrmsr", "+a"(low), "+d"(high) : "c"(number));
}

static void msrs(void)
{
    for (uint32_t i = 0; i < 0x1000; i++)
        msr(i);
    for (uint32_t i = 0; i < 0x400; i++) {
        msr(0x40000000 + i);
        msr(0x4b564d00 + i);
        msr(0xc0000000 + i);
        msr(0xc0010000 + i);
        msr(0xc0011000 + i);
    }
}

static void wild_msrs(void)
{
    for (uint32_t i = 0; i < 0x1000; i++) {
        uint32_t low = i * 0x9e3779b1u, high = i * 0x85ebca6bu;
        TRY("wrmsr", "+a"(low), "+d"(high) : "c"(i));
    }
}

/* All that devices have, and some others; none is written that would end the machine. */
static void ports(void)
{
    for (uint32_t port = 0; port < 0x10000; port += port < 0x500 ? 1 : 0x1fc) {
        uint32_t value = 0;
        TRY("inb %%dx, %%al", "+a"(value) : "d"(port));
        sum = mix(sum, value);
        TRY("inw %%dx, %%ax", "+a"(value) : "d"(port));
        TRY("inl %%dx, %%eax", "+a"(value) : "d"(port));
        sum = mix(sum, value);
        if (port == 0x64 || port == 0x92 || (port >= 0x3f0 && port < 0x400) ||
            (port >= 0x600 && port < 0x620) || port == 0xcf9)
            continue;
        TRY("outb %%al, %%dx", "+a"(value) : "d"(port));
        value = ~port;
        TRY("outw %%ax, %%dx", "+a"(value) : "d"(port));
        TRY("outl %%eax, %%dx", "+a"(value) : "d"(port));
    }
}

static void control(void)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t old, other;
        __asm__ volatile("mov %%cr4, %0" : "=r"(old));
        other = old ^ 1ull << bit;
        if (bit != 5 && bit != 12) /* not 64-bit paging itself */
            TRY("mov %%rax, %%cr4", "+a"(other) :);
        __asm__ volatile("mov %0, %%cr4" : : "r"(old));
        __asm__ volatile("mov %%cr0, %0" : "=r"(old));
        other = old ^ 1ull << bit;
        if (bit != 0 && bit != 31)
            TRY("mov %%rax, %%cr0", "+a"(other) :);
        __asm__ volatile("mov %0, %%cr0" : : "r"(old));
        other = 1ull << bit;
        TRY("mov %%rax, %%cr8", "+a"(other) :);
        TRY("mov %%rax, %%dr7", "+a"(other) :);
        other = 0;
        TRY("mov %%rax, %%cr8", "+a"(other) :);
        TRY("mov %%rax, %%dr7", "+a"(other) :);
        other = 1ull << bit;
        TRY("xsetbv", "+a"(other) : "c"(0), "d"((uint32_t)(other >> 32)));
    }
}

/* ---- page tables ---- */

static uint64_t *top_table(void)
{
    uint64_t cr3;

    __asm__ volatile("mov %%cr3, %0" : "=r"(cr3));
    return (uint64_t *)(cr3 & 0xffffffffff000ull);
}

static void flush(void)
{
    __asm__ volatile("mov %0, %%cr3" : : "r"(top_table()) : "memory");
}

/* The top table in itself: all tables can be read and written as memory, at this address. */
static void self_mapped(void)
{
    uint64_t *const top = top_table();
    const uint64_t at = 0xffff800000000000ull; /* entry 256 */

    top[256] = (uint64_t)top | PTE_ALL;
    flush();
    for (uint64_t i = 0; i < 4; i++) { /* tables of the first 2 GiB */
        volatile uint64_t *word = (volatile uint64_t *)(at + (i << 12));
        uint64_t value = *word;
        *word = value;
        sum = mix(sum, value & 1);
    }
    volatile uint64_t *self =
        (volatile uint64_t *)(at | 256ull << 30 | 256ull << 21 | 256ull << 12);
    sum = mix(sum, self[256] == top[256]);
}

/* Pages of 1 GiB over RAM, devices and nothing; and over what no address reaches. */
static void giant_pages(void)
{
    static OWN_PAGE uint64_t table[512];
    uint64_t *const top = top_table();

    for (uint64_t i = 0; i < 512; i++)
        table[i] = i << 30 | PTE_ALL | PTE_LARGE;
    top[300] = (uint64_t)table | PTE_ALL;
    flush();
    const uint64_t base = 0xffff000000000000ull | 300ull << 39;
    for (uint64_t i = 0; i < 512; i += i < 8 ? 1 : 56) {
        volatile uint64_t *word = (volatile uint64_t *)(base + (i << 30) + 0x1000008);
        sum = mix(sum, *word);
        *word = i;
        sum = mix(sum, *word);
    }
    table[5] = 0xfffffffc0000000ull | PTE_ALL | PTE_LARGE;
    flush();
    uint64_t rax = 0, at = base + (5ull << 30);
    TRY("movq (%%rdi), %%rax", "+a"(rax), "+D"(at) :);
}

/* Tables that are devices, and that are nowhere: an access through them. */
static void tables_nowhere(void)
{
    static const uint64_t where[] = {NOTHING, DEVICES, 0xfee00000, 0xfffffff000ull};
    uint64_t *const top = top_table();

    for (unsigned i = 0; i < sizeof where / sizeof where[0]; i++) {
        uint64_t rax = 0, at = 0xffff000000000000ull | 310ull << 39;
        top[310] = where[i] | PTE_ALL;
        flush();
        TRY("movq (%%rdi), %%rax", "+a"(rax), "+D"(at) :);
        TRY("movq %%rax, (%%rdi)", "+a"(rax), "+D"(at) :);
        sum = mix(sum, rax);
    }
}

/* ---- what cannot go on ---- */

static void cr3_nowhere(void)
{
    __asm__ volatile("mov %0, %%cr3" : : "r"(NOTHING));
}

static void cr3_device(void)
{
    __asm__ volatile("mov %0, %%cr3" : : "r"(DEVICES));
}

static void code_nowhere(void)
{
    ((void (*)(void))NOTHING)();
}

static void code_device(void)
{
    ((void (*)(void))DEVICES)();
}

static void stack_nowhere(void)
{
    __asm__ volatile("mov %0, %%rsp\n\tpush %%rax\n\tud2" : : "r"(NOTHING + 0x100));
}

static void idt_nowhere(void)
{
    const struct table_pointer p = {4095, NOTHING};

    __asm__ volatile("lidt %0\n\tint $3" : : "m"(p));
}

static void gdt_nowhere(void)
{
    const struct table_pointer p = {4095, NOTHING};

    __asm__ volatile("lgdt %0\n\tpushq $16\n\tleaq 1f(%%rip), %%rax\n\tpushq %%rax\n\tlretq\n1:"
                     :
                     : "m"(p)
                     : "rax");
}

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"strings", strings},
    {"vectors", vectors},
    {"unknown-vector", unknown_vector},
    {"msrs", msrs},
    {"wild-msrs", wild_msrs},
    {"ports", ports},
    {"control", control},
    {"self-mapped", self_mapped},
    {"giant-pages", giant_pages},
    {"tables-nowhere", tables_nowhere},
    {"cr3-nowhere", cr3_nowhere},
    {"cr3-device", cr3_device},
    {"code-nowhere", code_nowhere},
    {"code-device", code_device},
    {"stack-nowhere", stack_nowhere},
    {"idt-nowhere", idt_nowhere},
    {"gdt-nowhere", gdt_nowhere},
};

void guest_main(void)
{
    take_faults();
    if (parameter("timer", 0))
        timer_start(100);
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!parameter(kinds[i].name, 0))
            continue;
        put(kinds[i].name);
        put("\n");
        kinds[i].run();
        report("faults", faults);
        report("sum", sum);
    }
}
