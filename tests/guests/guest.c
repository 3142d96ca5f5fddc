#include "tests/guests/guest.h"

#define SERIAL   0x3f8
#define PIC1     0x20
#define PIC2     0xa0
#define PIT      0x40
#define PIT_HZ   1193182u
#define PM1A_CNT 0x604
#define SLEEP_S5 (0x2000 | 5 << 10)

#define KERNEL_CS 0x10
#define KERNEL_DS 0x18
#define USER_DS   0x23
#define USER_CS   0x2b
#define TSS       0x30
#define EXTRA     0x40

#define COMMAND_LINE 0x228 /* where the boot parameters hold its address */

#define VECTOR_TIMER 0x20
#define VECTOR_LEAVE 0x80

#define PTE_PRESENT  1ull
#define PTE_WRITE    2ull
#define PTE_USER     4ull
#define PTE_ACCESSED 0x20ull
#define PTE_DIRTY    0x40ull
#define PTE_LARGE    0x80ull
#define LARGE_PAGE   0x200000ull
#define CODE_PAGE    0x200000ull
#define USER_END     (32ull << 20)
#define GIB          (1ull << 30)

__asm__(".globl _start\n"
        "_start:\n"
        "    lea stack_top(%rip), %rsp\n"
        "    mov %rsi, boot_parameters(%rip)\n"
        "    xor %ebp, %ebp\n"
        "    call guest_main\n"
        "    call power_off\n");

static OWN_PAGE __attribute__((used)) uint8_t stack[16384];
__asm__(".globl stack_top\n.set stack_top, stack + 16384\n");

/* ---- console ---- */

void put(const char *text)
{
    for (; *text; text++) {
        while (!(inb(SERIAL + 5) & 0x20))
            continue;
        outb(SERIAL, (uint8_t)*text);
    }
}

void put_number(uint64_t value)
{
    char text[21], *p = text + 20;

    *p = 0;
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    put(p);
}

void report(const char *name, uint64_t value)
{
    put(name);
    put(" ");
    put_number(value);
    put("\n");
}

void power_off(void)
{
    outw(PM1A_CNT, SLEEP_S5);
    for (;;)
        __asm__ volatile("cli\n\thlt");
}

/* ---- the command line ---- */

const uint8_t *boot_parameters; /* set by _start, hence not static */

uint64_t parameter(const char *name, uint64_t otherwise)
{
    const char *at = (const char *)(uint64_t) * (const uint32_t *)(boot_parameters + COMMAND_LINE);
    uint64_t value = otherwise;

    while (*at) {
        const char *want = name;
        while (*want && *at == *want) {
            want++;
            at++;
        }
        if (!*want && *at == '=') {
            value = 0;
            for (at++; *at >= '0' && *at <= '9'; at++)
                value = value * 10 + (uint64_t)(*at - '0');
        }
        while (*at && *at != ' ')
            at++;
        while (*at == ' ')
            at++;
    }
    return value;
}

/* ---- interrupts ---- */

volatile uint64_t ticks, landed;
void (*volatile at_tick)(const struct interrupted *found);

struct gate {
    uint16_t offset_low, selector;
    uint8_t ist, type;
    uint16_t offset_middle;
    uint32_t offset_high, reserved;
};

static OWN_PAGE struct gate idt[256];
static struct table_pointer idt_pointer = {sizeof idt - 1, (uint64_t)idt};

static void set_gate(unsigned vector, uint64_t handler, unsigned dpl)
{
    idt[vector] = (struct gate){
        .offset_low = (uint16_t)handler,
        .selector = KERNEL_CS,
        .type = (uint8_t)(0x8e | dpl << 5),
        .offset_middle = (uint16_t)(handler >> 16),
        .offset_high = (uint32_t)(handler >> 32),
    };
}

/* In assembly, because the compiler's interrupt functions do not see the registers. */
void on_timer(void);
__asm__("on_timer:\n"
        "    push %rax\n    push %rbx\n    push %rcx\n    push %rdx\n    push %rsi\n"
        "    push %rdi\n    push %rbp\n    push %r8\n    push %r9\n    push %r10\n"
        "    push %r11\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    cld\n"
        "    mov %rsp, %rdi\n"
        "    call timer_interrupt\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %r11\n"
        "    pop %r10\n    pop %r9\n    pop %r8\n    pop %rbp\n    pop %rdi\n"
        "    pop %rsi\n    pop %rdx\n    pop %rcx\n    pop %rbx\n    pop %rax\n"
        "    iretq\n");

static __attribute__((used)) void timer_interrupt(const struct interrupted *found)
{
    const uint64_t *words = (const uint64_t *)found;
    uint64_t sum = landed;

    for (unsigned i = 0; i < sizeof *found / sizeof *words; i++)
        sum = mix(sum, words[i]);
    landed = sum;
    ticks++;
    if (at_tick)
        at_tick(found);
    outb(PIC1, 0x20);
}

static __attribute__((interrupt)) void on_fault(struct interrupt_frame *frame, uint64_t error)
{
    (void)frame;
    report("unexpected fault, error", error);
    power_off();
}

static __attribute__((interrupt)) void on_invalid_opcode(struct interrupt_frame *frame)
{
    (void)frame;
    put("unexpected invalid opcode\n");
    power_off();
}

static void (*after_user)(void);

static __attribute__((interrupt)) void on_leave(struct interrupt_frame *frame)
{
    (void)frame;
    after_user();
    power_off();
}

void set_handler(unsigned vector, void (*handler)(struct interrupt_frame *frame))
{
    set_gate(vector, (uint64_t)handler, 0);
}

/* Unless the guest has a handler of its own. */
static void set_default_gate(unsigned vector, uint64_t handler)
{
    if (!idt[vector].type)
        set_gate(vector, handler, 0);
}

void load_idt(void)
{
    set_default_gate(6, (uint64_t)on_invalid_opcode);
    set_default_gate(13, (uint64_t)on_fault);
    set_default_gate(14, (uint64_t)on_fault);
    set_gate(VECTOR_TIMER, (uint64_t)on_timer, 0);
    set_gate(VECTOR_LEAVE, (uint64_t)on_leave, 3);
    __asm__ volatile("lidt %0" : : "m"(idt_pointer));
}

void timer_start(unsigned hz)
{
    uint16_t divisor = (uint16_t)(PIT_HZ / parameter("hz", hz));

    load_idt();
    outb(PIC1, 0x11); /* edge triggered, cascaded, with the words that follow */
    outb(PIC2, 0x11);
    outb(PIC1 + 1, VECTOR_TIMER);
    outb(PIC2 + 1, VECTOR_TIMER + 8);
    outb(PIC1 + 1, 4);
    outb(PIC2 + 1, 2);
    outb(PIC1 + 1, 1);
    outb(PIC2 + 1, 1);
    outb(PIC1 + 1, 0xfe); /* the timer only */
    outb(PIC2 + 1, 0xff);
    outb(PIT + 3, 0x34); /* channel 0, both bytes, mode 2 */
    outb(PIT, (uint8_t)divisor);
    outb(PIT, (uint8_t)(divisor >> 8));
    __asm__ volatile("sti");
}

void report_ticks(uint64_t n)
{
    report("ticks", n);
    report("landed", landed);
}

/* ---- CPL3 ---- */

/* What a CPU needs of its own, on pages of its own: page tables, also because a walk takes their
 * pages like a write (KVM's under nested paging, each time that the TLB has lost an address). */
static struct cpu_room {
    uint64_t gdt[EXTRA / 8 + 2];
    uint32_t tss[26];
    OWN_PAGE uint64_t page_table[4][512];
    OWN_PAGE uint8_t interrupt_stack[16384];
    uint8_t user_stack[16384];
} cpu_room[CPUS_MAX];

/* None is ever made; but the monitor watches, as in any operating system, where they would begin.
 */
static void set_system_call(uint64_t handler)
{
    __asm__ volatile("wrmsr"
                     :
                     : "c"(0xc0000082), "a"((uint32_t)handler), "d"((uint32_t)(handler >> 32)));
}

uint64_t user_base16;

static void load_gdt(struct cpu_room *room)
{
    struct table_pointer pointer = {sizeof room->gdt - 1, (uint64_t)room->gdt};
    uint64_t base = (uint64_t)room->tss;
    uint64_t top = (uint64_t)(room->interrupt_stack + sizeof room->interrupt_stack);

    room->gdt[KERNEL_CS / 8] = 0x00af9b000000ffffull;
    room->gdt[KERNEL_DS / 8] = 0x00cf93000000ffffull;
    room->gdt[USER_DS / 8] = 0x00cff3000000ffffull;
    room->gdt[USER_CS / 8] = 0x00affb000000ffffull;
    room->gdt[TSS / 8] = 0x0000890000000000ull | (sizeof room->tss - 1) | (base & 0xffffff) << 16 |
                         (base >> 24 & 0xff) << 56;
    room->gdt[TSS / 8 + 1] = base >> 32;
    room->gdt[USER_CS32 / 8] = 0x00cffb000000ffffull;
    room->gdt[USER_CS16 / 8] = 0x0000fb000000ffffull | (user_base16 & 0xffffff) << 16;
    room->tss[1] = (uint32_t)top;
    room->tss[2] = (uint32_t)(top >> 32);
    room->tss[25] = sizeof room->tss << 16; /* no I/O bitmap: user code has no ports */
    __asm__ volatile("lgdt %0\n\tltr %w1" : : "m"(pointer), "r"(TSS));
    set_system_call((uint64_t)on_leave);
}

/* The first and the fourth GiB, where RAM and the APICs are, with nothing left for the CPU to note
 * in them. CPL3 has the memory that guests have; code cannot be written, as in any operating
 * system. */
void use_own_page_tables(unsigned cpu)
{
    uint64_t(*page_table)[512] = cpu_room[cpu].page_table;
    const uint64_t table = PTE_PRESENT | PTE_WRITE | PTE_USER | PTE_ACCESSED;

    for (uint64_t i = 0; i < 512; i++) {
        const uint64_t va = i * LARGE_PAGE,
                       page = PTE_PRESENT | PTE_ACCESSED | PTE_DIRTY | PTE_LARGE;
        page_table[2][i] =
            va | page | (va < USER_END ? PTE_USER : 0) | (va == CODE_PAGE ? 0 : PTE_WRITE);
        page_table[3][i] = (va + 3 * GIB) | page | PTE_WRITE;
    }
    page_table[1][0] = (uint64_t)page_table[2] | table;
    page_table[1][3] = (uint64_t)page_table[3] | table;
    page_table[0][0] = (uint64_t)page_table[1] | table;
    __asm__ volatile("mov %0, %%cr3" : : "r"(page_table[0]) : "memory");
}

uint64_t *own_page_table(unsigned cpu)
{
    return cpu_room[cpu].page_table[0];
}

void prepare_user(void (*then)(void))
{
    load_idt();
    use_own_page_tables(0);
    after_user = then;
    put("entering user code\n"); /* also time for the monitor to see what was set up */
}

/* Interrupts off, and what RFLAGS were. */
static uint64_t flags_and_cli(void)
{
    uint64_t flags;

    __asm__ volatile("pushfq\n\tpopq %0\n\tcli" : "=r"(flags));
    return flags;
}

static _Noreturn void enter_with(unsigned cpu, void (*code)(unsigned cpu), uint64_t flags)
{
    struct cpu_room *room = &cpu_room[cpu];

    __asm__ volatile("lidt %0" : : "m"(idt_pointer));
    load_gdt(room);
    /* For code of 32 and 16 bits; 64-bit code does without. */
    __asm__ volatile("movw %w0, %%ds\n\tmovw %w0, %%es" : : "r"(USER_DS));
    __asm__ volatile("pushq %0\n\tpushq %1\n\tpushq %2\n\tpushq %3\n\tpushq %4\n\tiretq"
                     :
                     : "i"(USER_DS), "r"(room->user_stack + sizeof room->user_stack - 8),
                       "r"(flags), "i"(USER_CS), "r"(code), "D"(cpu)
                     : "memory");
    __builtin_unreachable();
}

void enter_user_on(unsigned cpu, void (*code)(unsigned cpu))
{
    enter_with(cpu, code, flags_and_cli());
}

void enter_user(void (*code)(void), void (*then)(void))
{
    const uint64_t flags = flags_and_cli();

    prepare_user(then);
    enter_with(0, (void (*)(unsigned))code, flags);
}

void leave_user(void)
{
    __asm__ volatile("int %0" : : "i"(VECTOR_LEAVE));
    __builtin_unreachable();
}

static void (*user_work)(void);

static void work_as_user(void)
{
    user_work();
    leave_user();
}

void at_chosen_level(void (*work)(void), void (*done)(void))
{
    user_work = work;
    if (parameter("user", 0))
        enter_user(work_as_user, done);
    work();
    done();
}
