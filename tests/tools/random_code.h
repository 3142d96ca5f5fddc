#ifndef TESTS_TOOLS_RANDOM_CODE_H
#define TESTS_TOOLS_RANDOM_CODE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "recording/event.h"

/*
 * Random sequences of instructions for tests/tools/step_oracle.c. They run at the same addresses in
 * a guest and in a process, end at their last byte, and leave the same registers and data in both:
 * what would differ (IF and IOPL on the stack, addresses) is masked. Instructions that fault are
 * two bytes long.
 */
#define CODE_AT    0x100000u
#define CODE_MAX   4096u
#define DATA_AT    0x800000u
#define DATA_BYTES 4096u
#define STACK_AT   0xa0000u
#define UNMAPPED   0x40000000u

struct code {
    uint64_t seed;
    unsigned len;
    uint8_t bytes[CODE_MAX];
};

static inline uint32_t pick(struct code *c, uint32_t below)
{
    c->seed ^= c->seed << 13;
    c->seed ^= c->seed >> 7;
    c->seed ^= c->seed << 17;
    return (uint32_t)(c->seed >> 16) % below;
}

static inline void put(struct code *c, const void *bytes, unsigned len)
{
    if (c->len + len > CODE_MAX)
        abort();
    memcpy(c->bytes + c->len, bytes, len);
    c->len += len;
}

#define PUT(c, ...) put(c, (const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]){__VA_ARGS__})

static inline void put32(struct code *c, uint32_t v)
{
    put(c, &v, 4);
}

/* A low register but RSP: RAX RCX RDX RBX RBP RSI RDI. */
static inline uint8_t any_register(struct code *c)
{
    static const uint8_t registers[] = {0, 1, 2, 3, 5, 6, 7};

    return registers[pick(c, sizeof registers)];
}

/* One that a loop's counter in RCX survives. */
static inline uint8_t other_register(struct code *c)
{
    uint8_t reg = any_register(c);

    return reg == 1 ? 0 : reg;
}

/* Arithmetic on registers and on the data page; RCX stays as it is. */
static inline void put_simple(struct code *c)
{
    const uint8_t to = other_register(c), from = any_register(c);
    const uint32_t at = DATA_AT + 8 * pick(c, DATA_BYTES / 8 - 1);

    switch (pick(c, 9)) {
    case 0: /* add, or, adc, sbb, and, sub, xor, cmp */
        PUT(c, 0x48, (uint8_t)(1 + 8 * pick(c, 8)), (uint8_t)(0xc0 | from << 3 | to));
        return;
    case 1: /* the same with an immediate */
        PUT(c, 0x48, 0x83, (uint8_t)(0xc0 | pick(c, 8) << 3 | to), (uint8_t)pick(c, 256));
        return;
    case 2: /* mov reg, imm32 */
        PUT(c, (uint8_t)(0xb8 | to));
        put32(c, pick(c, UINT32_MAX));
        return;
    case 3: /* add [at], reg */
        PUT(c, 0x48, 0x01, (uint8_t)(0x04 | from << 3), 0x25);
        put32(c, at);
        return;
    case 4: /* mov reg, [at] */
        PUT(c, 0x48, 0x8b, (uint8_t)(0x04 | to << 3), 0x25);
        put32(c, at);
        return;
    case 5: /* rol reg, imm */
        PUT(c, 0x48, 0xc1, (uint8_t)(0xc0 | to), (uint8_t)(1 + pick(c, 62)));
        return;
    case 6: /* cmovcc, setcc */
        PUT(c, 0x48, 0x0f, (uint8_t)(0x40 | pick(c, 16)), (uint8_t)(0xc0 | to << 3 | from));
        return;
    case 7: /* movups xmm0, [at]; paddq xmm0, xmm0; movups [at], xmm0 */
        PUT(c, 0x0f, 0x10, 0x04, 0x25);
        put32(c, DATA_AT + 16 * pick(c, DATA_BYTES / 16 - 1));
        PUT(c, 0x66, 0x0f, 0xd4, 0xc0, 0x0f, 0x11, 0x04, 0x25);
        put32(c, DATA_AT + 16 * pick(c, DATA_BYTES / 16 - 1));
        return;
    default: /* push, pop */
        PUT(c, (uint8_t)(0x50 | from), (uint8_t)(0x58 | to));
        return;
    }
}

/* mov ecx, n; body; loop, dec and jnz, or jrcxz and a jump back. */
static inline void put_loop(struct code *c)
{
    PUT(c, 0xb9);
    put32(c, 1 + pick(c, 12));
    const unsigned top = c->len;
    unsigned kind = pick(c, 4);
    for (unsigned i = pick(c, 3); i--;)
        put_simple(c);
    if (kind < 2) /* loop, loopne: the latter may end early */
        PUT(c, (uint8_t)(kind ? 0xe2 : 0xe0), (uint8_t)(top - (c->len + 2)));
    else if (kind == 2)
        PUT(c, 0x48, 0xff, 0xc9, 0x75, (uint8_t)(top - (c->len + 5)));
    else /* dec rcx; jrcxz over; jmp top */
        PUT(c, 0x48, 0xff, 0xc9, 0xe3, 0x02, 0xeb, (uint8_t)(top - (c->len + 7)));
}

/* rep movsb, stosb, lodsb; repe cmpsb, repne scasb: within the data page. */
static inline void put_string(struct code *c)
{
    static const uint8_t strings[][2] = {
        {0xf3, 0xa4}, {0xf3, 0xaa}, {0xf3, 0xac}, {0xf3, 0xa6}, {0xf2, 0xae},
    };

    PUT(c, 0xfc, 0xbe); /* cld; mov esi */
    put32(c, DATA_AT + pick(c, DATA_BYTES / 2));
    PUT(c, 0xbf);
    put32(c, DATA_AT + pick(c, DATA_BYTES / 2));
    PUT(c, 0xb9);
    put32(c, pick(c, 20));
    put(c, strings[pick(c, 5)], 2);
}

/* What shows the flags, or loads them. */
static inline void put_flags(struct code *c)
{
    switch (pick(c, 4)) {
    case 3: /* pushfw; pop ax; and eax, as below */
        PUT(c, 0x66, 0x9c, 0x66, 0x58, 0x25);
        put32(c, 0xdd5);
        return;
    case 0: /* pushfq; pop rax; and eax, all but IF and IOPL: TF would show */
        PUT(c, 0x9c, 0x58, 0x25);
        put32(c, 0xdd5);
        return;
    case 1: /* pushfq; and qword [rsp], not status; or qword [rsp], status; popfq */
        PUT(c, 0x9c, 0x48, 0x81, 0x24, 0x24);
        put32(c, ~(uint32_t)RFLAGS_STATUS);
        PUT(c, 0x48, 0x81, 0x0c, 0x24);
        put32(c, pick(c, 0x1000) & RFLAGS_STATUS);
        PUT(c, 0x9d);
        return;
    default: /* lahf; stc or cmc */
        PUT(c, 0x9f, pick(c, 2) ? 0xf9 : 0xf5);
        return;
    }
}

/* What faults (two bytes are skipped by whoever runs it), or traps. */
static inline void put_trap(struct code *c, unsigned cpl)
{
    switch (pick(c, cpl == 3 ? 6 : 4)) {
    case 0:
        PUT(c, 0x0f, 0x0b); /* ud2 */
        return;
    case 1:
        PUT(c, 0x31, 0xc9, 0xf7, 0xf1); /* xor ecx, ecx; div ecx */
        return;
    case 2:
        PUT(c, 0xbe); /* mov esi, UNMAPPED; mov eax, [rsi] */
        put32(c, UNMAPPED);
        PUT(c, 0x8b, 0x06);
        return;
    case 3:
        PUT(c, 0xcd, 0x30); /* int 0x30 */
        return;
    case 4: /* syscall; what it leaves in R11 is shown but for IF and IOPL */
        PUT(c, 0x0f, 0x05, 0x49, 0x81, 0xe3);
        put32(c, 0xdd5);
        return;
    default:
        PUT(c, 0x0f, 0x06); /* clts: #GP at CPL3 */
        return;
    }
}

/* call f; jmp over; f: simple; ret; over: */
static inline void put_call(struct code *c)
{
    PUT(c, 0xe8);
    put32(c, 2);
    PUT(c, 0xeb, 0);
    const unsigned from = c->len;
    for (unsigned i = pick(c, 3); i--;)
        put_simple(c);
    PUT(c, 0xc3);
    c->bytes[from - 1] = (uint8_t)(c->len - from);
}

/* A conditional jump over some instructions, short or near. */
static inline void put_branch(struct code *c)
{
    const bool near = pick(c, 2);

    if (near) {
        PUT(c, 0x0f, (uint8_t)(0x80 | pick(c, 16)));
        put32(c, 0);
    } else {
        PUT(c, (uint8_t)(0x70 | pick(c, 16)), 0);
    }
    const unsigned from = c->len;
    for (unsigned i = pick(c, 4); i--;)
        put_simple(c);
    c->bytes[near ? from - 4 : from - 1] = (uint8_t)(c->len - from);
}

static inline void random_code(struct code *c, uint64_t seed, unsigned cpl)
{
    *c = (struct code){.seed = seed * 0x9e3779b97f4a7c15ull + 1};
    for (unsigned n = 6 + pick(c, 16); n--;) {
        switch (pick(c, 10)) {
        case 0:
            put_loop(c);
            break;
        case 1:
            put_string(c);
            break;
        case 2:
            put_flags(c);
            break;
        case 3:
            put_trap(c, cpl);
            break;
        case 4:
            put_call(c);
            break;
        case 5:
        case 6:
        case 7:
            put_branch(c);
            break;
        default:
            put_simple(c);
        }
    }
}

#endif
