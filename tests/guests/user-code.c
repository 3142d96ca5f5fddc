#include "tests/guests/guest.h"

#define TICKS 40

/*
 * User code of other kinds than the 64-bit code of a compiler, each in a loop that waits for ticks.
 * "kind=N" on the command line:
 *
 *   0  32-bit code that counts in a register
 *   1  ... in memory, within a loop whose own counter runs through the same values each time
 *   2  ... by calls, with its counter on the stack
 *   3  16-bit code, whose segment does not begin at 0
 *   4  x87 instructions
 *   5  x87 instructions in 32-bit code
 *   6  code that sets RFLAGS.TF: each of its instructions is followed by a #DB
 *   7  code that is written for each tick, to where nothing was before
 *   8  code that hardly does anything but REP MOVS
 *   9  ... in 32 bits
 *  10  code that hardly does anything but REPE CMPS, REPNE SCAS and REP LODS, backwards, too
 *  11  code that is 32-bit code and 16-bit code in turns, at other offsets of their segments
 *  12  as 7, but by a mapping by which it is not executed; "at=N": in the page there, in MiB
 *  13  an instruction that jumps behind its own prefix, over and over
 */
#define FAR_TO(selector, label)                                                                    \
    "pushq $" #selector "\n\tleaq " label "(%%rip), %%rax\n\tpushq %%rax\n\tlretq\n"
#define LEAVE "int $0x80\n\t.code64\n\t"

uint32_t count32, inner32, limit32; /* the code's, so not static */
uint64_t passes, steps, sum;
double x87;

static void counts_in_register(void)
{
    __asm__ volatile(FAR_TO(0x43, "1f") ".code32\n"
                                        "1:\txorl %%eax, %%eax\n"
                                        "2:\tincl %%eax\n\t"
                                        "movl %%eax, count32\n\t"
                                        "cmpl %%edx, ticks\n\tjb 2b\n\t" LEAVE
                     :
                     : "d"(limit32)
                     : "rax", "memory");
}

static void counts_in_memory(void)
{
    __asm__ volatile(
        FAR_TO(0x43, "1f") ".code32\n"
                           "1:\tmovl $50, %%ecx\n"
                           "2:\tmovl %%ecx, inner32\n\tdecl %%ecx\n\tjnz 2b\n\t"
                           "incl count32\n\t"
                           "movl ticks, %%eax\n\tcmpl limit32, %%eax\n\tjb 1b\n\t" LEAVE
        :
        :
        : "rax", "rcx", "memory");
}

static void calls(void)
{
    __asm__ volatile(FAR_TO(0x43, "1f") ".code32\n"
                                        "1:\tpushl $0\n"
                                        "2:\tcall 3f\n\t"
                                        "cmpl %%edx, ticks\n\tjb 2b\n\t"
                                        "popl count32\n\t" /* */
                     LEAVE ".code32\n"
                                        "3:\tpushl %%ebp\n\tmovl %%esp, %%ebp\n\tincl 8(%%ebp)\n\t"
                                        "movl 8(%%ebp), %%eax\n\tandl $7, %%eax\n"
                                        "4:\tdecl %%eax\n\tjns 4b\n\t"
                                        "popl %%ebp\n\tret\n\t.code64"
                     :
                     : "d"(limit32)
                     : "rax", "memory");
}

extern const uint8_t code16[];

/* DS is flat: only the code's segment is of 16 bits. */
static void code_of_16_bits(void)
{
    __asm__ volatile("pushq $0x4b\n\tpushq $0\n\tlretq\n"
                     ".globl code16\n"
                     "code16:\n\t.code16\n\t"
                     "xorl %%eax, %%eax\n"
                     "2:\tincl %%eax\n\t"
                     "movl %%eax, (%%ebx)\n\t"
                     "cmpl %%edx, (%%ecx)\n\tjb 2b\n\t" LEAVE
                     :
                     : "d"(limit32), "b"(&count32), "c"(&ticks)
                     : "rax", "memory");
}

extern const uint8_t both16[];

/* The carry flag says whose turn it is: INC leaves it. The three instructions at 2 are the same in
 * either width. */
static void code_of_both(void)
{
    __asm__ volatile(FAR_TO(0x43, "1f") ".code32\n"
                                        ".globl both16\n"
                                        "both16:\n"
                                        "1:\txorl %%eax, %%eax\n"
                                        "2:\tincl %%eax\n\tjnz 3f\n"
                                        "3:\tjnc 4f\n\t"
                                        ".code16\n\tljmpl $0x43, $5f\n\t"
                                        ".code32\n"
                                        "4:\tstc\n\tljmp $0x4b, $(2b - both16)\n"
                                        "5:\tmovl %%eax, count32\n\t"
                                        "cmpl %%edx, ticks\n\tjae 6f\n\t"
                                        "clc\n\tjmp 2b\n"
                                        "6:\t" LEAVE
                     :
                     : "d"(limit32)
                     : "rax", "memory", "cc");
}

#define SUM "fld1\n\tfadd %%st(1), %%st\n\tfstl x87\n\tfstp %%st(1)\n\t"

static void sums(void)
{
    __asm__ volatile("fninit\n\tfldz\n"
                     "1:\t" SUM "cmpl %%edx, ticks\n\tjb 1b\n\tfistpll passes\n\t"
                     :
                     : "d"(limit32)
                     : "memory");
    leave_user();
}

static void sums_in_32_bits(void)
{
    __asm__ volatile(FAR_TO(0x43, "1f") ".code32\n"
                                        "1:\tfninit\n\tfldz\n"
                                        "2:\t" SUM
                                        "cmpl %%edx, ticks\n\tjb 2b\n\tfistpll passes\n\t" LEAVE
                     :
                     : "d"(limit32)
                     : "rax", "memory");
}

static void steps_itself(void)
{
    __asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n"
                     "1:\tincq passes\n\t"
                     "imulq $1664525, %%rax, %%rax\n\taddq $1013904223, %%rax\n\t"
                     "cmpl %%edx, ticks\n\tjb 1b\n\t"
                     "pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\t"
                     "movq %%rax, count32"
                     :
                     : "d"(limit32), "a"(1)
                     : "memory", "cc");
    leave_user();
}

/* Code is written to one place, and read in another. */
static void write_and_run(uint8_t (*write)[PAGE_BYTES / 64], uint8_t (*run)[PAGE_BYTES / 64])
{
    /* 1: inc %rax; cmp ticks, %rbx; je 1b; ret */
    uint8_t code[] = {0x48, 0xff, 0xc0, 0x48, 0x3b, 0x1c, 0x25, 0, 0, 0, 0, 0x74, 0xf3, 0xc3};
    const uint32_t address = (uint32_t)(uint64_t)&ticks;

    for (unsigned i = 0; i < sizeof address; i++)
        code[7 + i] = (uint8_t)(address >> 8 * i);
    for (unsigned n = 0; n < 64 && ticks < limit32; n++) {
        for (unsigned i = 0; i < sizeof code; i++)
            *(volatile uint8_t *)&write[n][i] = code[i];
        __asm__ volatile("call *%[code]"
                         : "+a"(passes)
                         : "b"(ticks), [code] "r"(run[n])
                         : "memory", "cc");
    }
    leave_user();
}

static void is_written(void)
{
    static uint8_t written[64][PAGE_BYTES / 64];

    write_and_run(written, written);
}

#define USER_PAGE 5ull /* present, and no more than read */
#define WRITABLE  2ull
#define ALIASES   (1ull << 39) /* which the second entry of the highest table translates */

static uint64_t alias_of;

static void is_written_elsewhere(void)
{
    static OWN_PAGE uint64_t upper[512], middle[512], lower[512];
    void *const write = (void *)ALIASES, *const run = (void *)(ALIASES + PAGE_BYTES);

    lower[0] = alias_of | USER_PAGE | WRITABLE;
    lower[1] = alias_of | USER_PAGE;
    middle[0] = (uint64_t)lower | USER_PAGE | WRITABLE;
    upper[0] = (uint64_t)middle | USER_PAGE | WRITABLE;
    own_page_table(0)[1] = (uint64_t)upper | USER_PAGE | WRITABLE;
    write_and_run(write, run);
}

static uint8_t copied[2 * PAGE_BYTES];
uint8_t copied_to[2 * PAGE_BYTES], *copied_from = copied;

static void copies(void)
{
    while (ticks < limit32) {
        const void *from = copied;
        void *to = copied_to;
        uint64_t length = sizeof copied;

        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(length)::"memory");
        copied[passes++ % sizeof copied]++;
    }
    leave_user();
}

static void copies_in_32_bits(void)
{
    __asm__ volatile(FAR_TO(0x43, "1f") ".code32\n"
                                        "1:\tmovl copied_from, %%esi\n\tmovl $copied_to, %%edi\n\t"
                                        "movl %%ebx, %%ecx\n\trep movsb\n\t"
                                        "incl count32\n\t"
                                        "cmpl %%edx, ticks\n\tjb 1b\n\t" LEAVE
                     :
                     : "d"(limit32), "b"(sizeof copied)
                     : "rax", "rcx", "rsi", "rdi", "memory");
}

/* How far it comes in its strings, whose only difference moves. */
static void compares(void)
{
    while (ticks < limit32) {
        const uint8_t *a = copied, *b = copied_to, *in = copied + sizeof copied - 2;
        uint64_t compared = sizeof copied, scanned = sizeof copied / 2, loaded = sizeof copied / 8,
                 last;

        copied_to[passes * 7 % sizeof copied] ^= 0x5a;
        __asm__ volatile("repe cmpsb" : "+S"(a), "+D"(b), "+c"(compared)::"cc", "memory");
        __asm__ volatile("std\n\trepne scasw\n\tcld"
                         : "+D"(in), "+c"(scanned)
                         : "a"(0x5a5a)
                         : "cc", "memory");
        a = copied;
        __asm__ volatile("rep lodsq" : "+S"(a), "+c"(loaded), "=a"(last)::"memory");
        copied_to[passes * 7 % sizeof copied] ^= 0x5a;
        copied[sizeof copied - 8 + passes % 8]++;
        passes++;
        sum = mix(sum, compared ^ scanned << 16 ^ last);
    }
    leave_user();
}

/* A REX prefix, and `1: loopne 1b`. */
static void jumps_into_itself(void)
{
    __asm__ volatile("1:\tmovq $20000, %%rcx\n\ttestq %%rcx, %%rcx\n\t"
                     ".byte 0x42, 0xe0, 0xfe\n\t"
                     "incq passes\n\tcmpl %%edx, ticks\n\tjb 1b"
                     :
                     : "d"(limit32)
                     : "rcx", "memory", "cc");
    leave_user();
}

static __attribute__((interrupt)) void on_step(struct interrupt_frame *frame)
{
    (void)frame;
    steps++;
}

static void done(void)
{
    report_ticks(limit32);
    report("passes", passes);
    report("count", count32);
    report("steps", steps);
    report("sum", sum);
}

void guest_main(void)
{
    static void (*const kinds[])(void) = {counts_in_register,
                                          counts_in_memory,
                                          calls,
                                          code_of_16_bits,
                                          sums,
                                          sums_in_32_bits,
                                          steps_itself,
                                          is_written,
                                          copies,
                                          copies_in_32_bits,
                                          compares,
                                          code_of_both,
                                          is_written_elsewhere,
                                          jumps_into_itself};
    const uint64_t kind = parameter("kind", 0);

    limit32 = (uint32_t)parameter("ticks", TICKS);
    alias_of = parameter("at", 8) << 20;
    user_base16 = (uint64_t)(kind == 11 ? both16 : code16);
    set_handler(1, on_step);
    timer_start(100);
    enter_user(kinds[kind < sizeof kinds / sizeof *kinds ? kind : 0], done);
}
