/*
 * What the breakpoint's HLT in user code leads to while a trace is in place: it raises #GP, of
 * which the handler is here, in the annex. A pass takes an exception and an IRETQ instead of an
 * exit.
 *
 * Of 64-bit code that left the trace, to do what is not copied, and has come back, it brings the
 * vCPU to the copy of the site, which compares.
 *
 * Code of 32 and 16 bits is not copied at all: the handler compares as a trace does, at CPL0. Where
 * something differs it does the instruction, a jump, by changing where the IRETQ goes on; else it
 * goes on to the #GP hook, as if it had never been there.
 */
#include <assert.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/points/annex.h"
#include "vmm/points/trace/trace_code.h"

/* Words of the handler's; its stack is of one word, above them. */
enum {
    OWN_RAX, /* the guest's, while ours is in use */
    OWN_RCX,
    OWN_RSP, /* of the exception frame */
    OWN_HOOK,
    OWN_COUNT, /* as WORD_COUNT */
    OWN_COPY,  /* of the site: its address, or 0 */
    OWN_STACK,
    OWN_STACK_TOP,
};
/* Of the exception frame from RSP on. */
enum { FRAME_ERROR = 0, FRAME_RIP = 8, FRAME_CS = 16, FRAME_RFLAGS = 24, FRAME_RSP = 32 };

#define JUMPS (2 * TRACE_CONDITIONS + 8)

struct code {
    uint8_t *at, *end;
    int64_t words; /* from `at`'s page to the page of the words */
    uint8_t *start;
    /* rel32s of jumps to two places ahead */
    uint8_t *out[JUMPS], *next[JUMPS];
    unsigned outs, nexts;
};

static void put(struct code *c, const void *bytes, size_t len)
{
    assert(c->at + len <= c->end);
    memcpy(c->at, bytes, len);
    c->at += len;
}

#define PUT(c, ...) put((c), (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* An instruction whose last operand byte is the ModRM of a RIP-relative one, that of a word of
 * ours; `behind` bytes of an immediate follow. */
static void put_own(struct code *c, const uint8_t *opcode, unsigned len, unsigned word,
                    unsigned behind)
{
    put(c, opcode, len);
    const int32_t rel = (int32_t)(c->words + word * 8 - (c->at + 4 + behind - c->start));
    put(c, &rel, sizeof rel);
}

static void save(struct code *c, uint8_t modrm_reg, unsigned word)
{
    put_own(c, (const uint8_t[]){0x48, 0x89, (uint8_t)(modrm_reg << 3 | 5)}, 3, word, 0);
}

static void load(struct code *c, uint8_t modrm_reg, unsigned word)
{
    put_own(c, (const uint8_t[]){0x48, 0x8b, (uint8_t)(modrm_reg << 3 | 5)}, 3, word, 0);
}

/* mov rax, value (register 0) or mov rcx, value (1) */
static void constant(struct code *c, uint8_t reg, uint64_t value)
{
    PUT(c, 0x48, (uint8_t)(0xb8 | reg));
    put(c, &value, sizeof value);
}

/* A jump ahead, Jcc or JMP, whose target is not known yet. */
static void jump_out(struct code *c, const uint8_t *opcode, unsigned len)
{
    put(c, opcode, len);
    c->out[c->outs++] = c->at;
    PUT(c, 0, 0, 0, 0);
}

static void land_here(struct code *c, uint8_t *const *from, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const int32_t rel = (int32_t)(c->at - (from[i] + 4));
        memcpy(from[i], &rel, sizeof rel);
    }
}

static const uint8_t jne[] = {0x0f, 0x85}, je[] = {0x0f, 0x84}, jmp[] = {0xe9};

/* The guest comes here by the HLT of the breakpoint, and not by a #GP of its own. */
static void put_is_ours(struct code *c, uint64_t rip, uint16_t cs)
{
    constant(c, 0, rip);
    PUT(c, 0x48, 0x39, 0x44, 0x24, FRAME_RIP); /* cmp [rsp + FRAME_RIP], rax */
    jump_out(c, jne, sizeof jne);
    PUT(c, 0x66, 0x81, 0x7c, 0x24, FRAME_CS, (uint8_t)cs, (uint8_t)(cs >> 8));
    jump_out(c, jne, sizeof jne);
    PUT(c, 0x48, 0x83, 0x3c, 0x24, 0); /* cmp qword [rsp + FRAME_ERROR], 0 */
    jump_out(c, jne, sizeof jne);
}

static void put_condition(struct code *c, const struct trace_condition *condition)
{
    const uint8_t reg = condition->memory || condition->reg == REGISTER_RFLAGS
                            ? 0
                            : insn_encoding_of[condition->reg];

    constant(c, 0, condition->value);
    if (condition->memory) {
        constant(c, ENC_RCX, condition->va);
        PUT(c, 0x48, 0x8b, 0x09, 0x48, 0x39, 0xc1); /* mov rcx, [rcx]; cmp rcx, rax */
    } else if (condition->reg == REGISTER_RFLAGS) {
        PUT(c, 0x48, 0x8b, 0x4c, 0x24, FRAME_RFLAGS);   /* mov rcx, [rsp + FRAME_RFLAGS] */
        PUT(c, 0x0f, 0xba, 0xf1, 16, 0x48, 0x39, 0xc1); /* btr ecx, 16 (RF); cmp rcx, rax */
    } else if (reg == 0 || reg == ENC_RCX) {
        put_own(c, (const uint8_t[]){0x48, 0x39, 0x05}, 3, reg ? OWN_RCX : OWN_RAX, 0);
    } else if (reg == ENC_RSP) {
        PUT(c, 0x48, 0x39, 0x44, 0x24, FRAME_RSP); /* cmp [rsp + FRAME_RSP], rax */
    } else {
        PUT(c, (uint8_t)(0x48 | reg >> 3), 0x39, (uint8_t)(0xc0 | (reg & 7))); /* cmp reg, rax */
    }
    put(c, jne, sizeof jne);
    c->next[c->nexts++] = c->at;
    PUT(c, 0, 0, 0, 0);
}

/* RAX = where the guest goes on behind the jump. */
static void put_jump(struct code *c, const struct trace_jump *jump)
{
    switch (jump->kind) {
    case JUMP_ALWAYS:
        constant(c, 0, jump->taken);
        break;
    case JUMP_FLAGS:
        PUT(c, 0x48, 0x8b, 0x44, 0x24, FRAME_RFLAGS, 0x25); /* mov rax, flags; and eax, ... */
        put(c, &(const uint32_t){RFLAGS_STATUS}, 4);
        save(c, ENC_RSP, OWN_RSP);
        put_own(c, (const uint8_t[]){0x48, 0x8d, 0x25}, 3, OWN_STACK_TOP, 0); /* lea rsp, ... */
        PUT(c, 0x50, 0x9d);                                                   /* push rax; popfq */
        load(c, ENC_RSP, OWN_RSP);
        constant(c, 0, jump->next);
        PUT(c, (uint8_t)(0x70 | (jump->condition ^ 1)), 10); /* Jcc over the 10 bytes of: */
        constant(c, 0, jump->taken);
        break;
    case JUMP_RCX:
    case JUMP_ECX:
        load(c, ENC_RCX, OWN_RCX);
        constant(c, 0, jump->taken);
        if (jump->kind == JUMP_ECX)
            PUT(c, 0x67);
        PUT(c, 0xe3, 10); /* JRCXZ */
        constant(c, 0, jump->next);
        break;
    }
}

/* Memory that can be looked at from the handler without a fault, until the guest's kernel runs. */
static bool is_there(const struct trace *t, const struct trace_condition *c)
{
    struct translation first, last;

    return !t->vm->ownership && walk(t->memory, t->root, c->va, &first) && first.user &&
           walk(t->memory, t->root, c->va + 7, &last) && last.user &&
           guest_memory_at(t->memory, first.gpa, 1) && guest_memory_at(t->memory, last.gpa, 1);
}

static uint64_t *own_words(const struct trace *t)
{
    return (uint64_t *)(annex_of(t->vm)->pages + ANNEX_HANDLER_WORDS);
}

/* Go on at the address in RAX. */
static void put_return(struct code *c)
{
    PUT(c, 0x48, 0x89, 0x44, 0x24, FRAME_RIP);
    PUT(c, 0x81, 0x64, 0x24, FRAME_RFLAGS, 0xff, 0xff, 0xfe, 0xff); /* and flags, ~RF */
    load(c, 0, OWN_RAX);
    load(c, ENC_RCX, OWN_RCX);
    PUT(c, 0x48, 0x83, 0xc4, 8, 0x48, 0xcf); /* add rsp, 8; iretq */
}

/* Go on to the #GP hook: c->out leads here. */
static void put_out(struct code *c, const struct trace *t)
{
    land_here(c, c->out, c->outs);
    load(c, 0, OWN_RAX);
    load(c, ENC_RCX, OWN_RCX);
    put_own(c, (const uint8_t[]){0xff, 0x25}, 2, OWN_HOOK, 0); /* jmp [hook] */
    own_words(t)[OWN_HOOK] = t->hook->rip;
}

static struct code new_code(const struct trace *t)
{
    uint8_t *const start = annex_of(t->vm)->pages + ANNEX_HANDLER;

    return (struct code){.at = start,
                         .start = start,
                         .end = start + PAGE_BYTES,
                         .words = (int64_t)ANNEX_HANDLER_WORDS - (int64_t)ANNEX_HANDLER};
}

bool trace_handler_write(struct trace *t)
{
    struct code c = new_code(t);
    unsigned conditions = 0;

    save(&c, 0, OWN_RAX);
    save(&c, ENC_RCX, OWN_RCX);
    put_is_ours(&c, t->site, t->cs.selector);
    for (unsigned i = 0; i < t->conditions; i++) {
        if (t->condition[i].memory && !is_there(t, &t->condition[i]))
            continue;
        put_condition(&c, &t->condition[i]);
        conditions++;
    }
    if (conditions)
        jump_out(&c, jmp, sizeof jmp);
    land_here(&c, c.next, c.nexts);
    if (t->countdown) { /* the last one is counted by who looks at it */
        put_own(&c, (const uint8_t[]){0x48, 0x83, 0x3d}, 3, OWN_COUNT, 1); /* cmp count, 1 */
        PUT(&c, 1);
        jump_out(&c, je, sizeof je);
        put_own(&c, (const uint8_t[]){0x48, 0xff, 0x0d}, 3, OWN_COUNT, 0); /* dec count */
    }
    put_jump(&c, &t->jump);
    put_return(&c);
    put_out(&c, t);
    own_words(t)[OWN_COUNT] = t->countdown ? *t->countdown : 0;
    return conditions || t->countdown;
}

void trace_handler_write_return(struct trace *t)
{
    struct code c = new_code(t);

    save(&c, 0, OWN_RAX);
    save(&c, ENC_RCX, OWN_RCX);
    put_is_ours(&c, t->site, t->cs.selector);
    load(&c, 0, OWN_COPY);
    PUT(&c, 0x48, 0x85, 0xc0); /* test rax, rax */
    jump_out(&c, je, sizeof je);
    put_return(&c);
    put_out(&c, t);
}

void trace_handler_set_copy(struct trace *t, uint64_t va)
{
    own_words(t)[OWN_COPY] = va;
}

uint64_t trace_handler_count(const struct trace *t)
{
    return own_words(t)[OWN_COUNT];
}

/* ---- the jump ---- */

bool trace_jump_of(const struct insn *insn, const struct kvm_regs *regs, struct trace_jump *out)
{
    const ZydisDecodedOperand *to = &insn->operands[0];
    const uint64_t mask = insn->info.operand_width == 64   ? ~0ull
                          : insn->info.operand_width == 32 ? 0xffffffff
                                                           : 0xffff;
    const uint64_t next = regs->rip + insn->info.length;

    if (!insn->info.operand_count || to->type != ZYDIS_OPERAND_TYPE_IMMEDIATE ||
        !to->imm.is_relative)
        return false;
    *out = (struct trace_jump){.next = next & mask,
                               .taken = (next + (uint64_t)to->imm.value.s) & mask,
                               .condition = insn->info.opcode & 15};
    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
        out->kind = JUMP_ALWAYS;
        return true;
    case ZYDIS_MNEMONIC_JRCXZ:
        out->kind = JUMP_RCX;
        return true;
    case ZYDIS_MNEMONIC_JECXZ:
        out->kind = JUMP_ECX;
        return true;
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
        return false;
    default:
        out->kind = JUMP_FLAGS;
        return insn->info.meta.category == ZYDIS_CATEGORY_COND_BR &&
               insn->info.mnemonic != ZYDIS_MNEMONIC_XBEGIN;
    }
}

static bool flags_say(uint64_t rflags, unsigned condition)
{
    const bool cf = rflags & 1, pf = rflags & 4, zf = rflags & 0x40, sf = rflags & 0x80,
               of = rflags & 0x800;
    const bool yes[] = {of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of};

    return yes[condition >> 1] != (condition & 1);
}

uint64_t trace_jump_target(const struct trace_jump *jump, const struct kvm_regs *regs)
{
    switch (jump->kind) {
    case JUMP_ALWAYS:
        return jump->taken;
    case JUMP_FLAGS:
        return flags_say(regs->rflags, jump->condition) ? jump->taken : jump->next;
    case JUMP_RCX:
        return regs->rcx ? jump->next : jump->taken;
    case JUMP_ECX:
        return (uint32_t)regs->rcx ? jump->next : jump->taken;
    }
    return jump->next;
}
