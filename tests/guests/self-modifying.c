#include "tests/guests/guest.h"

#define TICKS 120

/*
 * A loop that writes the instruction it is about to execute: its immediate in each pass, its opcode
 * in one of 256. The instruction is REX.W and then ADD, SUB or XOR of the immediate to RAX. The
 * immediate is also the only place where passes are counted.
 */
void guest_main(void)
{
    static const uint8_t opcodes[] = {0x05, 0x2d, 0x35, 0x05};
    uint64_t n = parameter("ticks", TICKS), sum = 0, scratch = 0;
    extern uint32_t immediate;

    timer_start(100);
    __asm__ volatile("1:\n\t"
                     "incl immediate(%%rip)\n\t"
                     "cmpb $0, immediate(%%rip)\n\t"
                     "jne 2f\n\t"
                     "movzbl immediate + 1(%%rip), %k[scratch]\n\t"
                     "and $3, %k[scratch]\n\t"
                     "movb (%[opcodes], %[scratch]), %b[scratch]\n\t"
                     "movb %b[scratch], immediate - 1(%%rip)\n"
                     "2:\n\t"
                     "rol $7, %[sum]\n\t"
                     ".byte 0x48, 0x05\n"
                     ".globl immediate\n"
                     "immediate:\n\t"
                     ".long 0\n\t"
                     "cmpq %[limit], ticks(%%rip)\n\t"
                     "jb 1b"
                     : [sum] "+a"(sum), [scratch] "+r"(scratch)
                     : [opcodes] "r"(opcodes), [limit] "r"(n)
                     : "cc", "memory");
    report_ticks(n);
    report("passes", immediate);
    report("sum", sum);
}
