#ifndef BASE_X86_H
#define BASE_X86_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of the architecture (Intel SDM vol. 3) that several parts need. */

#define CR0_EM  (1ull << 2)
#define CR0_TS  (1ull << 3)
#define CR0_PG  (1ull << 31)
#define CR4_TSD (1ull << 2)
#define CR4_PAE (1ull << 5)

#define EFER_SCE (1ull << 0)
#define EFER_LMA (1ull << 10)

#define RFLAGS_CF         (1ull << 0)
#define RFLAGS_ZF         (1ull << 6)
#define RFLAGS_TF         (1ull << 8)
#define RFLAGS_IF         (1ull << 9)
#define RFLAGS_DF         (1ull << 10)
#define RFLAGS_IOPL_SHIFT 12
#define RFLAGS_RF         (1ull << 16)
#define RFLAGS_STATUS     0x8d5ull /* CF, PF, AF, ZF, SF and OF */

/* Debug registers: breakpoints that are enabled in DR7, and those that DR6 says were hit. */
#define DR7_ENABLED 0xffull
#define DR6_HITS    0xfull
#define DR6_BS      0x4000ull /* a step by TF */
/* Breakpoint 0, local, a write of 4 bytes (Intel SDM vol. 3, 18.2.4). */
#define DR7_WRITE_4 0xd0001ull
#define DR6_RESET   0xffff0ff0ull

#define VECTOR_DB 1
#define VECTOR_UD 6
#define VECTOR_GP 13

#define MSR_IA32_TSC       0x10u
#define MSR_STAR           0xc0000081u
#define MSR_LSTAR          0xc0000082u
#define MSR_CSTAR          0xc0000083u
#define MSR_SFMASK         0xc0000084u
#define MSR_FS_BASE        0xc0000100u
#define MSR_GS_BASE        0xc0000101u
#define MSR_KERNEL_GS_BASE 0xc0000102u

/* The opcode of HLT, a breakpoint's byte: it always exits. */
#define HLT 0xf4
/* Bytes of the longest instruction. */
#define INSN_MAX 15

static inline bool is_rex(uint8_t byte)
{
    return (byte & 0xf0) == 0x40;
}

/* Whether it is a prefix other than LOCK; REX is one in 64-bit code. */
static inline bool is_prefix(uint8_t byte, bool code_64)
{
    switch (byte) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
    case 0x67:
    case 0xf2:
    case 0xf3:
        return true;
    default:
        return code_64 && is_rex(byte);
    }
}

/* How many of these an instruction begins with, of whose code there are `len` bytes. */
static inline size_t prefixes(const uint8_t *code, size_t len, bool code_64)
{
    size_t n = 0;

    while (n < len && is_prefix(code[n], code_64))
        n++;
    return n;
}

#endif
