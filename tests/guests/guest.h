#ifndef TESTS_GUESTS_GUEST_H
#define TESTS_GUESTS_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the bare-metal test guests share. They are entered like a 64-bit Linux kernel: long mode,
 * the first 4 GiB identity-mapped, interrupts off. Each guest is one file with a guest_main(); the
 * machine powers off when that returns.
 */
void guest_main(void);

#define CPUS_MAX   8
#define PAGE_BYTES 4096
/* Hot data of several CPUs has pages of its own; sizeof a type with this is whole pages. */
#define OWN_PAGE __attribute__((aligned(PAGE_BYTES)))

static inline void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline void outw(uint16_t port, uint16_t value)
{
    __asm__ volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t value;

    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

/* In loops that wait for another CPU. */
static inline void pause(void)
{
    __asm__ volatile("pause" : : : "memory");
}

#define CR0_MP         (1u << 1)
#define CR0_EM         (1u << 2)
#define CR0_TS         (1u << 3)
#define CR4_OSFXSR     (1u << 9)
#define CR4_OSXMMEXCPT (1u << 10)

/* Have x87 and SSE instructions work. */
static inline void sse_on(void)
{
    uint64_t cr;

    __asm__ volatile("mov %%cr0, %0" : "=r"(cr));
    cr = (cr | CR0_MP) & ~(uint64_t)(CR0_EM | CR0_TS);
    __asm__ volatile("mov %0, %%cr0" : : "r"(cr));
    __asm__ volatile("mov %%cr4, %0" : "=r"(cr));
    cr |= CR4_OSFXSR | CR4_OSXMMEXCPT;
    __asm__ volatile("mov %0, %%cr4" : : "r"(cr));
}

static inline uint64_t rdtsc(void)
{
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/*
 * RDTSC in user code. A guest is one program, and dittovm patches the RDTSCs of a kernel's text:
 * this one is hidden in the immediate of a CMP, so that it traps as it does in a program of its
 * own.
 */
static inline uint64_t rdtsc_user(void)
{
    uint32_t low, high;

    __asm__ volatile("call 1f + 1\n\t"
                     "jmp 2f\n"
                     "1:\t.byte 0x3d, 0x0f, 0x31, 0xc3, 0x90\n" /* cmp $..., %eax; or rdtsc; ret */
                     "2:"
                     : "=a"(low), "=d"(high)
                     :
                     : "cc");
    return (uint64_t)high << 32 | low;
}

/* The console: text, and a number in decimal. Ports, so from CPL0 only. */
void put(const char *text);
void put_number(uint64_t value);
/* "NAME VALUE\n" */
void report(const char *name, uint64_t value);

_Noreturn void power_off(void);

/* The number behind "NAME=" on the command line (`dittovm run --append NAME=NUMBER`); the last one
 * counts. */
uint64_t parameter(const char *name, uint64_t otherwise);

/* Mixes a value into a running checksum. */
static inline uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x100000001b3ull;
}

/* What LIDT and LGDT read. */
struct __attribute__((packed)) table_pointer {
    uint16_t limit;
    uint64_t base;
};

/* What a timer interrupt found, in the order in which the handler pushed it. */
struct interrupted {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t rip, cs, rflags, rsp, ss;
};

/* Timer interrupts since timer_start(). */
extern volatile uint64_t ticks;
/* All that they found, mixed: one that comes at another instruction, or in another pass of a loop,
 * changes this even where the guest's own results are the same. A guest whose place shows elsewhere
 * (a deep stack, SSE registers) mixes that in too, in at_tick(). */
extern volatile uint64_t landed;
/* Called at each timer interrupt, on the interrupted stack, when it is set. */
extern void (*volatile at_tick)(const struct interrupted *found);
/* Interrupts from the 8254 at `hz`, taken from here on. */
void timer_start(unsigned hz);
/* The end of a guest's run of `n` ticks: "ticks N", "landed CHECKSUM". */
void report_ticks(uint64_t n);

/* Take a vector's interrupts with this handler, an __attribute__((interrupt)) function, from the
 * next load of the IDT on. */
struct interrupt_frame;
void set_handler(unsigned vector, void (*handler)(struct interrupt_frame *frame));
void load_idt(void);

/* Continue in `code` at CPL3, for which all of memory becomes accessible. The code ends with
 * leave_user(), which continues in `then` at CPL0, with interrupts off. */
_Noreturn void enter_user(void (*code)(void), void (*then)(void));
_Noreturn void leave_user(void);
/* The same on several CPUs. First the first one makes descriptor tables and its page tables, which
 * others that are started from here on begin with; each then makes its own, and enters. */
void prepare_user(void (*then)(void));
void use_own_page_tables(unsigned cpu);
/* The highest of a CPU's tables, whose first entry alone is used. */
uint64_t *own_page_table(unsigned cpu);
_Noreturn void enter_user_on(unsigned cpu, void (*code)(unsigned cpu));
/* Do `work` at CPL0, or at CPL3 if the command line says "user=1"; then `done` at CPL0. */
void at_chosen_level(void (*work)(void), void (*done)(void));

/* For user code that jumps to code of 32 bits with a base of 0, or of 16 bits from user_base16 on,
 * which is below 16 MiB: selectors. */
#define USER_CS32 0x43
#define USER_CS16 0x4b
extern uint64_t user_base16;

/* Wait for `n` ticks in a loop that the caller writes: the body is one or more instructions. */
#define UNTIL_TICKS(n, body, ...)                                                                  \
    __asm__ volatile("1:\n\t" body "\n\tcmpq %[limit], ticks(%%rip)\n\tjb 1b"                      \
                     : __VA_ARGS__                                                                 \
                     : [limit] "r"((uint64_t)(n))                                                  \
                     : "cc")

#endif
