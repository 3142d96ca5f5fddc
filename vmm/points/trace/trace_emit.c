/* The pieces of code in a trace that are ours: see vmm/points/trace/trace_code.h. None changes a
 * flag. */
#include <assert.h>
#include <string.h>

#include "vmm/points/trace/trace_code.h"

#define JUMP_BYTES    5u
#define RESTORE_BYTES 14u /* of restore_rcx_rdx() */

void emit(struct trace *t, const void *bytes, unsigned len)
{
    if (t->len + len > TRACE_CODE_BYTES) {
        t->full = true;
        return;
    }
    memcpy(t->code + t->len, bytes, len);
    t->len += len;
}

void emit8(struct trace *t, uint8_t byte)
{
    emit(t, &byte, 1);
}

void emit32(struct trace *t, uint32_t v)
{
    emit(t, &v, 4);
}

void emit64(struct trace *t, uint64_t v)
{
    emit(t, &v, 8);
}

uint64_t emit_here(const struct trace *t)
{
    return t->base + TRACE_CODE_OFFSET + t->len;
}

void emit_patch_rel32(struct trace *t, uint32_t at, uint32_t offset)
{
    uint32_t rel = offset - (at + 4);

    memcpy(t->code + at, &rel, 4);
}

void emit_rel32_to(struct trace *t, uint32_t offset)
{
    emit32(t, offset - (t->len + 4));
}

void emit_jump(struct trace *t, uint32_t offset)
{
    emit8(t, 0xe9);
    emit_rel32_to(t, offset);
}

void emit_detour(struct trace *t, uint32_t from, uint32_t to)
{
    t->code[from] = 0xe9;
    emit_patch_rel32(t, from + 1, to);
}

/* opcode with a RIP-relative operand at an offset in the trace's pages. */
static void emit_own(struct trace *t, uint8_t opcode, unsigned reg, uint32_t offset)
{
    const uint8_t bytes[] = {0x48, opcode, (uint8_t)(0x05 | reg << 3)};

    emit(t, bytes, sizeof bytes);
    emit32(t, (uint32_t)(t->base + offset - (emit_here(t) + 4)));
}

void emit_save(struct trace *t, unsigned reg, unsigned word)
{
    emit_own(t, 0x89, reg, TRACE_WORDS_OFFSET + word * 8);
}

void emit_load(struct trace *t, unsigned reg, unsigned word)
{
    emit_own(t, 0x8b, reg, TRACE_WORDS_OFFSET + word * 8);
}

void emit_constant(struct trace *t, unsigned reg, uint64_t value)
{
    emit8(t, 0x48);
    emit8(t, (uint8_t)(0xb8 | reg));
    emit64(t, value);
}

void emit_leave(struct trace *t, uint64_t target)
{
    static const uint8_t jump_far[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp [rip] */

    emit(t, jump_far, sizeof jump_far);
    emit64(t, target);
}

static void restore_rcx_rdx(struct trace *t)
{
    emit_load(t, ENC_RDX, WORD_RDX);
    emit_load(t, ENC_RCX, WORD_RCX);
}

/* ---- returns and indirect jumps ---- */

/* Entered with the target in RCX and the guest's RCX in its word. */
static void emit_dispatch(struct trace *t)
{
    static const uint8_t low_16_bits[] = {0x0f, 0xb7, 0xd1}; /* movzx edx, cx */
    static const uint8_t load[] = {0x8b, 0x14, 0x91};        /* mov edx, [rcx + rdx * 4] */
    static const uint8_t add[] = {0x48, 0x8d, 0x14, 0x0a};   /* lea rdx, [rdx + rcx] */
    static const uint8_t jump[] = {0xff, 0xe2};              /* jmp rdx */

    emit_save(t, ENC_RCX, WORD_TARGET);
    emit_save(t, ENC_RDX, WORD_RDX);
    emit(t, low_16_bits, sizeof low_16_bits);
    emit_own(t, 0x8d, ENC_RCX, TRACE_TABLE_OFFSET);
    emit(t, load, sizeof load);
    emit_own(t, 0x8d, ENC_RCX, TRACE_CODE_OFFSET);
    emit(t, add, sizeof add);
    emit_load(t, ENC_RCX, WORD_TARGET);
    emit(t, jump, sizeof jump);
}

/* Note which return looks its target up; 0: none. */
static void emit_site(struct trace *t, uint32_t site)
{
    static const uint8_t store[] = {0xc7, 0x05}; /* mov dword [rip + distance], constant */

    emit(t, store, sizeof store);
    emit32(t, (uint32_t)(t->base + TRACE_WORDS_OFFSET + WORD_SITE * 8 - (emit_here(t) + 8)));
    emit32(t, site);
}

void emit_dispatch_jump(struct trace *t)
{
    emit_site(t, 0);
    emit_jump(t, t->dispatch);
}

/*
 * Before and after the target is known:
 *
 *    0  jmp slow                   lea ecx, [rcx - low half of target]
 *    6                             jrcxz high
 *    8  slow:  mov rcx, [rsp - 8]; WORD_SITE = site; jmp dispatch
 *   28  high:  mov ecx, [rsp - 4]; lea ecx, [rcx - high half of target]; jrcxz +2; jmp slow
 *   42         the guest's RCX; jmp copy
 *
 * The return address is below RSP: it was just popped.
 */
enum { RETURN_SLOW = 8, RETURN_HIGH = 28, RETURN_HIGH_HALF = 34, RETURN_COPY = 50 };
static const uint8_t jump_slow[] = {0xe9, RETURN_SLOW - 5,          0, 0, 0, 0x90,
                                    0xe3, RETURN_HIGH - RETURN_SLOW};

void trace_emit_return(struct trace *t)
{
    static const uint8_t load_target[] = {0x48, 0x8b, 0x4c, 0x24, 0xf8};
    static const uint8_t check_high[] = {
        0x8b, 0x4c, 0x24, 0xfc, 0x8d, 0x89, 0, 0, 0, 0, 0xe3, 2, 0xeb, (uint8_t)(RETURN_SLOW - 42)};
    const uint32_t site = t->len;

    emit(t, jump_slow, sizeof jump_slow);
    emit(t, load_target, sizeof load_target);
    emit_site(t, site);
    emit_jump(t, t->dispatch);
    assert(t->full || t->len == site + RETURN_HIGH);
    emit(t, check_high, sizeof check_high);
    emit_load(t, ENC_RCX, WORD_RCX);
    emit_jump(t, t->dispatch); /* until it is known */
    assert(t->full || t->len == site + RETURN_COPY + 4);
}

void trace_predict_return(struct trace *t, uint32_t site, uint64_t target, uint32_t copy)
{
    const uint32_t low = 0 - (uint32_t)target, high = 0 - (uint32_t)(target >> 32);
    static const uint8_t lea_ecx[] = {0x8d, 0x89};

    /* The word can be written by the guest. */
    if (site >= t->len || t->len - site < RETURN_COPY + 4 ||
        memcmp(t->code + site, jump_slow, sizeof jump_slow))
        return;
    memcpy(t->code + site + RETURN_HIGH_HALF, &high, 4);
    emit_patch_rel32(t, site + RETURN_COPY, copy);
    memcpy(t->code + site, lea_ecx, sizeof lea_ecx);
    memcpy(t->code + site + sizeof lea_ecx, &low, 4);
}

/* A jump where RCX is not 0; the place of its rel32, to be patched. */
static uint32_t emit_jump_unless_zero(struct trace *t)
{
    static const uint8_t unless_zero[] = {0xe3, JUMP_BYTES, 0xe9}; /* jrcxz over jmp */

    emit(t, unless_zero, sizeof unless_zero);
    emit32(t, 0);
    return t->len - 4;
}

/* lea rcx, [base + rdx]: an addition that leaves the flags alone. */
static void emit_add_rdx(struct trace *t, unsigned base)
{
    const uint8_t bytes[] = {
        (uint8_t)(0x48 | (base >= 8)), 0x8d, 0x4c, (uint8_t)(ENC_RDX << 3 | (base & 7)), 0,
    };

    emit(t, bytes, sizeof bytes);
}

void trace_add_target(struct trace *t, uint64_t target, uint32_t copy)
{
    uint32_t *slot = &t->table[(uint16_t)target], at = t->len;

    if (t->looked_up_count == TRACE_PLACES) {
        t->full = true;
        return;
    }
    emit_constant(t, ENC_RDX, 0 - target);
    emit_add_rdx(t, ENC_RCX);
    emit8(t, 0xe3); /* jrcxz over what follows */
    emit8(t, 12);
    emit_load(t, ENC_RCX, WORD_TARGET);
    emit_jump(t, *slot);
    restore_rcx_rdx(t);
    emit_jump(t, copy);
    if (t->full)
        return;
    *slot = at;
    t->looked_up[t->looked_up_count++] = target;
}

/* ---- the comparison ---- */

static void load_rcx_from(struct trace *t, uint64_t va)
{
    static const uint8_t load[] = {0x48, 0x8b, 0x09}; /* mov rcx, [rcx] */

    emit_constant(t, ENC_RCX, va);
    emit(t, load, sizeof load);
}

/* lea rcx, [rcx + offset] */
static void emit_add_to_rcx(struct trace *t, uint64_t offset)
{
    static const uint8_t lea[] = {0x48, 0x8d, 0x89};

    emit(t, lea, sizeof lea);
    emit32(t, (uint32_t)offset);
}

/* xchg rcx, reg */
static void emit_swap_rcx(struct trace *t, unsigned reg)
{
    if (reg == ENC_RCX)
        return;
    emit8(t, (uint8_t)(0x48 | (reg >= 8)));
    emit8(t, 0x87);
    emit8(t, (uint8_t)(0xc0 | ENC_RCX << 3 | (reg & 7)));
}

static bool is_small(uint64_t value)
{
    return (uint64_t)(int32_t)value == value && value != 0xffffffff80000000;
}

/* A register with a small value can be compared in RCX without touching memory. */
static bool by_swap(const struct trace *t, const struct trace_condition *c)
{
    return !t->countdown && !c->memory && c->reg != REGISTER_RFLAGS &&
           insn_encoding_of[c->reg] != ENC_RSP && is_small(c->value);
}

static void emit_quick_end(struct trace *t, const struct trace_condition *c)
{
    if (by_swap(t, c)) {
        emit_add_to_rcx(t, c->value);
        emit_swap_rcx(t, insn_encoding_of[c->reg]);
    } else {
        emit_load(t, ENC_RCX, WORD_RCX);
    }
}

/* jrcxz to the jump in front of t->quick, which leads to the whole comparison. */
static void emit_jump_if_zero(struct trace *t)
{
    emit8(t, 0xe3);
    emit8(t, (uint8_t)(t->quick - JUMP_BYTES - (t->len + 1)));
}

/* One pass more; RCX is saved. */
static void emit_countdown(struct trace *t)
{
    static const uint8_t decrement[] = {0x48, 0x8d, 0x49, 0xff}; /* lea rcx, [rcx - 1] */

    emit_load(t, ENC_RCX, WORD_COUNT);
    emit(t, decrement, sizeof decrement);
    emit_save(t, ENC_RCX, WORD_COUNT);
    emit_jump_if_zero(t);
    emit_load(t, ENC_RCX, WORD_RCX);
}

/* In front of the copy of the site, the first condition: RCX becomes 0 when it may be true, or when
 * only the whole comparison can tell; then the latter follows. And the countdown. */
static void emit_quick(struct trace *t, const struct trace_condition *c)
{
    static const uint8_t mov_ecx_0[] = {0xb9, 0, 0, 0, 0};
    unsigned reg = ENC_RCX;

    if (t->countdown && !t->conditions) {
        emit_save(t, ENC_RCX, WORD_RCX);
        emit_countdown(t);
        return;
    }
    if (by_swap(t, c)) {
        emit_swap_rcx(t, insn_encoding_of[c->reg]);
        emit_add_to_rcx(t, 0 - c->value);
    } else {
        emit_save(t, ENC_RCX, WORD_RCX);
        if (t->countdown)
            emit_countdown(t);
        if (!c->memory && c->reg == REGISTER_RFLAGS) {
            emit(t, mov_ecx_0, sizeof mov_ecx_0);
        } else {
            if (c->memory)
                load_rcx_from(t, c->va);
            else
                reg = insn_encoding_of[c->reg];
            if (reg >= 8)
                emit8(t, 0x41);
            emit8(t, 0x8d); /* lea ecx, [reg - low half of value] */
            emit8(t, (uint8_t)(0x88 | (reg & 7)));
            if ((reg & 7) == ENC_RSP)
                emit8(t, 0x24);
            emit32(t, 0 - (uint32_t)c->value);
        }
    }
    emit_jump_if_zero(t);
    emit_quick_end(t, c);
}

uint32_t trace_emit_guard(struct trace *t, uint64_t va, const uint8_t *expected, unsigned words)
{
    uint32_t mismatch[2];

    assert(words >= 1 && words <= 2);
    emit_save(t, ENC_RCX, WORD_RCX);
    emit_save(t, ENC_RDX, WORD_RDX);
    for (unsigned i = 0; i < words; i++) {
        uint64_t value;
        memcpy(&value, expected + 8 * i, 8);
        load_rcx_from(t, va + 8 * i);
        emit_constant(t, ENC_RDX, 0 - value);
        emit_add_rdx(t, ENC_RCX);
        mismatch[i] = emit_jump_unless_zero(t);
    }
    restore_rcx_rdx(t);
    emit8(t, 0xe9);
    const uint32_t over = t->len;
    emit32(t, 0);
    if (t->full)
        return 0;
    for (unsigned i = 0; i < words; i++)
        emit_patch_rel32(t, mismatch[i], t->len);
    restore_rcx_rdx(t);
    emit8(t, 0xe9);
    const uint32_t stale = t->len;
    emit32(t, 0);
    emit_patch_rel32(t, over, t->len);
    return stale;
}

static void emit_nops(struct trace *t, unsigned count)
{
    static const uint8_t nop[] = {0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0};

    for (; count >= sizeof nop; count -= sizeof nop)
        emit(t, nop, sizeof nop);
    while (count--)
        emit8(t, 0x90);
}

void trace_begin_site(struct trace *t)
{
    const uint8_t over[] = {0xeb, JUMP_BYTES};

    emit(t, over, sizeof over); /* for who comes from above */
    emit_jump(t, t->compare);
    t->quick = t->len;
    emit_nops(t, TRACE_QUICK_BYTES);
    t->body = t->len;
}

/* RCX = 0 when it is true; RCX and RDX are saved. */
static void emit_condition(struct trace *t, const struct trace_condition *c)
{
    static const uint8_t pushfq = 0x9c;
    unsigned base = ENC_RCX;

    if (c->memory) {
        load_rcx_from(t, c->va);
    } else if (c->reg == REGISTER_RFLAGS) {
        emit_save(t, ENC_RSP, WORD_RSP);
        emit_own(t, 0x8d, ENC_RSP, TRACE_WORDS_OFFSET + WORD_STACK * 8);
        emit(t, &pushfq, 1);
        emit_load(t, ENC_RSP, WORD_RSP);
        emit_load(t, ENC_RCX, WORD_FLAGS);
    } else if (insn_encoding_of[c->reg] == ENC_RCX) {
        emit_load(t, ENC_RCX, WORD_RCX);
    } else if (insn_encoding_of[c->reg] == ENC_RDX) {
        emit_load(t, ENC_RCX, WORD_RDX);
    } else {
        base = insn_encoding_of[c->reg];
    }
    emit_constant(t, ENC_RDX, 0 - c->value);
    emit_add_rdx(t, base);
}

/* All conditions, for the few passes in which the first may be true. */
static void emit_whole(struct trace *t)
{
    uint32_t mismatch[TRACE_CONDITIONS];

    if (t->conditions && by_swap(t, &t->condition[0])) {
        emit_quick_end(t, &t->condition[0]);
        emit_save(t, ENC_RCX, WORD_RCX);
    }
    emit_save(t, ENC_RDX, WORD_RDX);
    for (unsigned i = 0; i < t->conditions; i++) {
        emit_condition(t, &t->condition[i]);
        mismatch[i] = emit_jump_unless_zero(t);
    }
    restore_rcx_rdx(t);
    t->match_at = t->len;
    emit8(t, HLT);
    for (unsigned i = 0; i < t->conditions; i++)
        emit_patch_rel32(t, mismatch[i], t->len);
    t->counted_at = t->match_at;
    if (t->countdown) {
        emit_load(t, ENC_RCX, WORD_COUNT);
        emit8(t, 0xe3); /* jrcxz over: */
        emit8(t, RESTORE_BYTES + JUMP_BYTES);
        restore_rcx_rdx(t);
        emit_jump(t, t->body);
        restore_rcx_rdx(t);
        t->counted_at = t->len;
        emit8(t, HLT);
        return;
    }
    restore_rcx_rdx(t);
    emit_jump(t, t->body);
}

void trace_emit_compare(struct trace *t)
{
    const uint32_t end = t->len;

    t->len = t->compare;
    emit_whole(t);
    assert(t->len <= t->compare + TRACE_COMPARE_BYTES);
    t->len = t->quick;
    emit_quick(t, &t->condition[0]);
    assert(t->len <= t->body);
    const unsigned spare = t->body - t->len; /* the padding goes first: nothing is jumped over */
    t->len = t->quick;
    emit_nops(t, spare);
    emit_quick(t, &t->condition[0]);
    t->len = end;
}

/* ---- the beginning ---- */

void trace_reset(struct trace *t)
{
    for (unsigned i = 0; i < t->looked_up_count; i++)
        t->table[(uint16_t)t->looked_up[i]] = 0;
    memset(t->hash, 0, sizeof t->hash);
    t->len = t->map_count = t->place_count = t->request_count = t->looked_up_count = 0;
    t->page_count = 0;
    t->quick = t->body = TRACE_CODE_BYTES; /* nowhere */
    t->full = t->site_copied = false;
    restore_rcx_rdx(t); /* offset 0: what the table's empty slots lead to */
    t->miss_at = t->len;
    emit8(t, HLT);
    t->dispatch = t->len;
    emit_dispatch(t);
    t->compare = t->len;
    t->len += TRACE_COMPARE_BYTES;
}
