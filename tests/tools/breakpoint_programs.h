#ifndef TESTS_TOOLS_BREAKPOINT_PROGRAMS_H
#define TESTS_TOOLS_BREAKPOINT_PROGRAMS_H

#include "vmm/kvm/micro_guest.h"

/* What tests/tools/breakpoints.c runs, and nobody else: each is there once. */

/* Labels are where breakpoints are set. */
GUEST_CODE(loop, "mov $1500000, %ecx\n"
                 "xor %eax, %eax\n"
                 "loop_at: add $3, %rax\n"
                 "mov %rax, 0x800000\n"
                 "dec %ecx\n"
                 "jnz loop_at\n" GUEST_DONE);
/* One-byte instructions, and operands relative to RIP. */
GUEST_CODE(near_code, "mov $1500000, %ecx\n"
                      "1: lea near_data(%rip), %rdx\n"
                      "near_at: nop\n"
                      "push %rcx\n"
                      "incq near_data(%rip)\n"
                      "pop %rcx\n"
                      "dec %ecx\n"
                      "jnz 1b\n" GUEST_DONE ".set near_data, near_code + 0x200000\n");
GUEST_CODE(nested, "mov $5, %ebx\n"
                   "outer_at: mov $4, %ecx\n"
                   "inner_at: inc %eax\n"
                   "beside_at: dec %ecx\n"
                   "jnz inner_at\n"
                   "dec %ebx\n"
                   "jnz outer_at\n" GUEST_DONE);
/* What a plain step does not get right, or exits. */
GUEST_CODE(special, "mov $2, %ebx\n"
                    "pushf_at: pushf\n"
                    "popf_at: popf\n"
                    "out_at: out %al, $0x51\n"
                    "dec %ebx\n"
                    "jnz pushf_at\n" GUEST_DONE);
/* The trace has an exit in front of each jump through R8, and the one behind CMPXCHG16B shows the
 * flags that it leaves. RAX would be odd ones. */
GUEST_CODE(exchange, "mov $3, %esi\n"
                     "mov %rcx, 0x800000\n" /* no fault of nested paging comes between, later */
                     "exchange_at: lea 1f(%rip), %r8\n"
                     "mov $0x57a4000, %eax\n"
                     "jmp *%r8\n"
                     "1: add %rax, %rcx\n"
                     "mov %rcx, 0x800000\n"
                     "xor %ebx, %ebx\n"
                     "cmpxchg16b 0x800010\n"
                     "lea 2f(%rip), %r8\n"
                     "jmp *%r8\n"
                     "2: dec %esi\n"
                     "jnz exchange_at\n" GUEST_DONE);
/* Each jump takes the trace an exit, the first time. */
GUEST_CODE(sprawl, "mov $4, %esi\n"
                   "sprawl_at: dec %esi\n"
                   "jz 2f\n"
                   ".rept 250\n"
                   "lea 1f(%rip), %r8\n"
                   "jmp *%r8\n"
                   "1:\n"
                   ".endr\n"
                   "jmp sprawl_at\n"
                   "2:\n" GUEST_DONE);
#define SPRAWL_EXITS 40u /* for four passes, which is few; as a trace it is 250 */
/* x87 instructions are not copied: each pass leaves the trace and comes back. */
GUEST_CODE(leaving, "mov $1500000, %ecx\n"
                    "1: fld1\n"
                    "fstpl 0x800010\n"
                    "leaving_at: dec %ecx\n"
                    "jnz 1b\n" GUEST_DONE);
#define LEAVING_PASSES 20000u
/* A REP whose 17th and 18th iterations write what is watched, the first bytes of a page. */
GUEST_CODE(repeat, "mov $3, %ebx\n"
                   "1: mov $0x800ff0, %edi\n"
                   "mov $5000, %ecx\n"
                   "mov %ebx, %eax\n"
                   "repeat_at: rep stosb\n"
                   "dec %ebx\n"
                   "jnz 1b\n" GUEST_DONE);
#define REPEAT_COUNT   5000u
#define REPEAT_WATCHED 0x801000u
extern const uint8_t repeat_at[], loop_at[], near_at[], outer_at[], inner_at[], beside_at[],
    pushf_at[], popf_at[], out_at[], exchange_at[], sprawl_at[], leaving_at[];

#endif
