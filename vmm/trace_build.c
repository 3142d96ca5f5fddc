/* The copy of a loop, with comparisons in it: see vmm/trace.h. */
#include <assert.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/trace.h"

#define MAX_FIXUPS 4096u
#define MAX_RETS   256u
/* Room that is kept for what is emitted behind the last instruction. */
#define TAIL_BYTES 49152u
#define MAX_CALLS  64u

#define HASH_SLOTS 8192u
_Static_assert(HASH_SLOTS >= 2 * TRACE_MAX_INSNS, "the hash table stays half empty");

struct fixup {
    uint32_t at; /* of a rel32 */
    uint64_t target;
};

/* What is copied first: the loop's own code, then the functions it calls, then what lies far away,
 * which is mostly there for errors. */
enum urgency { NEAR, CALLEE, FAR, URGENCIES };
#define NEAR_BYTES 1024

struct queue {
    uint64_t va[MAX_FIXUPS];
    unsigned head, len;
};

struct builder {
    struct trace_filter *f;
    const struct guest_memory *memory;
    uint8_t *code; /* TRACE_CODE_BYTES */
    uint64_t *words;
    uint32_t len;
    unsigned word_count;
    struct fixup fixups[MAX_FIXUPS];
    unsigned fixup_count;
    struct queue queue[URGENCIES]; /* original addresses still to be copied */
    uint32_t rets[MAX_RETS];       /* rel32 of jumps to a return stub */
    unsigned ret_count;
    uint64_t returns[MAX_CALLS + TRACE_LEARNED]; /* return addresses that lie in the trace */
    unsigned return_count;
    uint16_t slots[HASH_SLOTS]; /* hash of original address -> index in the map, plus one */
    bool full;
};

/* ---- emitting ---- */

static void emit(struct builder *b, const void *bytes, unsigned len)
{
    if (b->len + len > TRACE_CODE_BYTES) {
        b->full = true;
        return;
    }
    memcpy(b->code + b->len, bytes, len);
    b->len += len;
}

static void emit8(struct builder *b, uint8_t byte)
{
    emit(b, &byte, 1);
}

static void emit32(struct builder *b, uint32_t v)
{
    emit(b, &v, 4);
}

static void emit64(struct builder *b, uint64_t v)
{
    emit(b, &v, 8);
}

/* The linear address of the next byte of code. */
static uint64_t here(const struct builder *b)
{
    return b->f->base + TRACE_CODE_OFFSET + b->len;
}

/* A rel32 to an original address, resolved at the end. */
static void emit_fixup(struct builder *b, uint64_t target)
{
    if (b->fixup_count == MAX_FIXUPS) {
        b->full = true;
        return;
    }
    b->fixups[b->fixup_count++] = (struct fixup){b->len, target};
    emit32(b, 0);
}

static void set_rel32(struct builder *b, uint32_t at, uint32_t target)
{
    uint32_t rel = target - (at + 4);

    memcpy(b->code + at, &rel, 4);
}

static unsigned new_word(struct builder *b, uint64_t value)
{
    unsigned index = TRACE_WORDS + b->word_count++;

    assert(index < 512);
    b->words[index] = value;
    return index;
}

/* opcode disp32 with a RIP-relative operand in the data page; all of ours are three bytes long. */
static void emit_word(struct builder *b, uint8_t opcode, uint8_t modrm, unsigned word)
{
    uint8_t bytes[3] = {0x48, opcode, modrm};
    uint64_t target = b->f->base + TRACE_DATA_OFFSET + word * 8;

    emit(b, bytes, 3);
    emit32(b, (uint32_t)(target - (here(b) + 4)));
}

static void save_rcx_rdx(struct builder *b)
{
    emit_word(b, 0x89, 0x0d, TRACE_RCX);
    emit_word(b, 0x89, 0x15, TRACE_RDX);
}

static void restore_rcx_rdx(struct builder *b)
{
    emit_word(b, 0x8b, 0x15, TRACE_RDX);
    emit_word(b, 0x8b, 0x0d, TRACE_RCX);
}

static void load_rdx(struct builder *b, uint64_t constant)
{
    emit_word(b, 0x8b, 0x15, new_word(b, constant));
}

/* lea rcx, [base + index]: an addition that leaves the flags alone. */
static void emit_add_to_rcx(struct builder *b, unsigned base, unsigned index)
{
    uint8_t bytes[5] = {
        (uint8_t)(0x48 | (base >= 8)), 0x8d, 0x4c, (uint8_t)(index << 3 | (base & 7)), 0,
    };

    emit(b, bytes, sizeof bytes);
}

/* jrcxz over a jump that is taken when RCX is not zero; returns where its rel32 is. */
static uint32_t emit_jump_unless_rcx_zero(struct builder *b)
{
    static const uint8_t bytes[] = {0xe3, 5, 0xe9};

    emit(b, bytes, sizeof bytes);
    emit32(b, 0);
    return b->len - 4;
}

/* ---- the comparisons ---- */

/* The slot of an original address: its own, or the empty one where it would go. */
static uint16_t *slot_of(struct builder *b, uint64_t original)
{
    uint32_t i = (uint32_t)(original * 0x9e3779b97f4a7c15ull >> 51);

    while (b->slots[i] && b->f->map[b->slots[i] - 1].original != original)
        i = (i + 1) % HASH_SLOTS;
    return &b->slots[i];
}

static void note_copy(struct builder *b, uint64_t original)
{
    *slot_of(b, original) = (uint16_t)(b->f->map_count + 1);
    b->f->map[b->f->map_count++] = (struct trace_map){original, b->len};
}

static void forget_copy(struct builder *b, uint64_t original)
{
    *slot_of(b, original) = 0; /* it was the last one to be noted: no probe chain leads over it */
    b->f->map_count--;
}

/* Numbers of registers in instructions, in the order of struct kvm_regs. */
static const uint8_t encoding[16] = {0, 3, 1, 2, 6, 7, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
#define ENC_RCX 1
#define ENC_RDX 2
#define ENC_RSP 4

/* lea ecx, [reg - low half of value]: zero when the low halves are equal, and no flag changes. */
static void emit_difference(struct builder *b, unsigned reg, uint64_t value)
{
    if (reg >= 8)
        emit8(b, 0x41);
    emit8(b, 0x8d);
    emit8(b, (uint8_t)(0x88 | (reg & 7)));
    if ((reg & 7) == ENC_RSP)
        emit8(b, 0x24);
    emit32(b, 0 - (uint32_t)value);
}

/* RCX = 0 when the condition may be true. Only the low halves are compared: the caller compares
 * everything when the trace stops. */
static void emit_condition(struct builder *b, const struct trace_condition *c)
{
    static const uint8_t load_rcx_from_rcx[] = {0x48, 0x8b, 0x09};

    if (!c->memory) {
        emit_difference(b, encoding[c->reg], c->value);
        return;
    }
    emit8(b, 0x48); /* mov rcx, imm64 */
    emit8(b, 0xb9);
    emit64(b, c->va);
    emit(b, load_rcx_from_rcx, sizeof load_rcx_from_rcx);
    emit_difference(b, ENC_RCX, c->value);
}

/*
 * The comparisons, in front of the copy of the site. In nearly all passes only the first one is
 * executed: save RCX, subtract, JRCXZ not taken, restore RCX. The others lie before it, within the
 * reach of JRCXZ.
 */
static void emit_comparisons(struct builder *b, const struct trace_condition *conditions,
                             unsigned count)
{
    uint32_t mismatch[TRACE_CONDITIONS], others = b->len;

    for (unsigned i = 1; i < count; i++) {
        emit_word(b, 0x8b, 0x0d, TRACE_RCX);
        emit_condition(b, &conditions[i]);
        mismatch[i] = emit_jump_unless_rcx_zero(b);
    }
    emit_word(b, 0x8b, 0x0d, TRACE_RCX);
    emit8(b, 0xf4);           /* hlt */
    note_copy(b, b->f->site); /* whoever comes to the site comes here */
    emit_word(b, 0x89, 0x0d, TRACE_RCX);
    emit_condition(b, &conditions[0]);
    emit8(b, 0xe3); /* jrcxz */
    emit8(b, (uint8_t)(others - (b->len + 1)));
    assert(b->len - others <= 128);
    for (unsigned i = 1; i < count; i++)
        set_rel32(b, mismatch[i], b->len);
    emit_word(b, 0x8b, 0x0d, TRACE_RCX);
}

/* ---- copying ---- */

static const struct trace_map *find_copy(struct builder *b, uint64_t original)
{
    uint16_t slot = *slot_of(b, original);

    return slot ? &b->f->map[slot - 1] : NULL;
}

static void enqueue(struct builder *b, enum urgency urgency, uint64_t original)
{
    struct queue *q = &b->queue[urgency];

    if (q->len < MAX_FIXUPS)
        q->va[q->len++] = original;
}

static bool dequeue(struct builder *b, uint64_t *original)
{
    for (unsigned urgency = NEAR; urgency < URGENCIES; urgency++) {
        struct queue *q = &b->queue[urgency];
        if (q->head < q->len) {
            *original = q->va[q->head++];
            return true;
        }
    }
    return false;
}

static bool may_copy(const struct builder *b, uint64_t va, struct insn *insn)
{
    struct translation t;

    if (!walk(b->memory, b->f->cr3, va, &t) || !t.executable)
        return false;
    if (b->f->cpl == 3 && (t.writable || !t.user))
        return false; /* it could change under the trace */
    return insn_decode(b->memory, b->f->cr3, va, insn) && insn->info.length <= insn->available;
}

/* push of a 64-bit constant, without a register and without flags. */
static void emit_push(struct builder *b, uint64_t value)
{
    static const uint8_t store_high[] = {0xc7, 0x44, 0x24, 0x04};

    emit8(b, 0x68);
    emit32(b, (uint32_t)value);
    if ((uint64_t)(int64_t)(int32_t)value != value) {
        emit(b, store_high, sizeof store_high);
        emit32(b, (uint32_t)(value >> 32));
    }
}

/* A plain instruction; RIP-relative operands are adjusted. False when that is impossible. */
static bool copy_plain(struct builder *b, const struct insn *insn)
{
    uint8_t bytes[INSN_MAX];
    unsigned len = insn->info.length;

    memcpy(bytes, insn->bytes, len);
    if (insn->info.attributes & ZYDIS_ATTRIB_IS_RELATIVE) {
        const unsigned at = insn->info.raw.disp.offset;
        if (insn->info.raw.disp.size != 32)
            return false;
        uint64_t target = insn->va + len + (uint64_t)insn->info.raw.disp.value;
        int64_t disp = (int64_t)(target - (here(b) + len));
        if (disp != (int32_t)disp)
            return false;
        uint32_t low = (uint32_t)disp;
        memcpy(bytes + at, &low, 4);
    }
    emit(b, bytes, len);
    return true;
}

static void copy_conditional(struct builder *b, const struct insn *insn, uint64_t target)
{
    uint8_t opcode = insn->info.opcode;

    if (insn->info.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && opcode >= 0xe0 && opcode <= 0xe3) {
        /* LOOP and JRCXZ have short forms only: jump around a long jump. */
        if (insn->info.address_width != 64)
            emit8(b, 0x67);
        const uint8_t bytes[] = {opcode, 2, 0xeb, 5, 0xe9};
        emit(b, bytes, sizeof bytes);
    } else {
        emit8(b, 0x0f);
        emit8(b, (uint8_t)(0x80 | (opcode & 15)));
    }
    emit_fixup(b, target);
    enqueue(b, target - insn->va + NEAR_BYTES < 2 * NEAR_BYTES ? NEAR : FAR, target);
}

/* The code behind the call is copied before the callee: it is nearer to the loop. */
static void copy_call(struct builder *b, const struct insn *insn, uint64_t target)
{
    uint64_t after = insn->va + insn->info.length;

    emit_push(b, after);
    emit8(b, 0xe9);
    emit_fixup(b, target);
    if (b->return_count < MAX_CALLS) {
        b->returns[b->return_count++] = after;
        enqueue(b, NEAR, after);
    }
    enqueue(b, CALLEE, target);
}

static void copy_return(struct builder *b)
{
    if (b->ret_count == MAX_RETS) {
        emit8(b, 0xc3);
        return;
    }
    emit8(b, 0xe9);
    b->rets[b->ret_count++] = b->len;
    emit32(b, 0);
}

/* What runs in the copy as it does in the original. At CPL0 that includes most privileged
 * instructions: they do not depend on RIP. */
static bool is_plain(const struct builder *b, const ZydisDecodedInstruction *info)
{
    if ((info->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) && b->f->cpl != 0)
        return false;
    switch (info->meta.category) {
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_VTX:
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:
        return false;
    case ZYDIS_CATEGORY_SYSTEM:
        return b->f->cpl == 0 && info->mnemonic != ZYDIS_MNEMONIC_HLT;
    default:
        return info->mnemonic != ZYDIS_MNEMONIC_HLT;
    }
}

/* Copy one instruction at va. Returns where the code goes on, or 0 when the run ends here. */
static uint64_t copy_one(struct builder *b, uint64_t va, const struct insn *insn)
{
    uint64_t after = va + insn->info.length, target = 0;
    bool direct =
        insn->operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && insn->operands[0].imm.is_relative;

    if (direct)
        target = after + (uint64_t)insn->operands[0].imm.value.s;
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
        if (!direct)
            break;
        copy_conditional(b, insn, target);
        return after;
    case ZYDIS_CATEGORY_UNCOND_BR:
        return direct ? target : 0;
    case ZYDIS_CATEGORY_CALL:
        if (!direct)
            break;
        copy_call(b, insn, target);
        return 0;
    case ZYDIS_CATEGORY_RET:
        if (insn->info.opcode != 0xc3 || insn->info.length != 1)
            break;
        copy_return(b);
        return 0;
    default:
        if (is_plain(b, &insn->info) && copy_plain(b, insn))
            return after;
    }
    return 0;
}

/* Whether copy_one() copies this at all; if not, the trace is left in front of it. */
static bool can_copy(const struct builder *b, const struct insn *insn)
{
    bool direct = insn->operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;

    if (insn->info.mnemonic == ZYDIS_MNEMONIC_XBEGIN)
        return false;
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_CALL:
        return direct && insn->operands[0].imm.is_relative;
    case ZYDIS_CATEGORY_RET:
        return insn->info.opcode == 0xc3 && insn->info.length == 1;
    default:
        return is_plain(b, &insn->info);
    }
}

static bool has_room(const struct builder *b)
{
    return !b->full && b->len + TAIL_BYTES < TRACE_CODE_BYTES &&
           b->f->map_count < b->f->map_limit && b->fixup_count + 8 < MAX_FIXUPS;
}

/* Copy a run of instructions from va on, up to a jump that is left or a place that is known. */
static void copy_run(struct builder *b, uint64_t va)
{
    while (va) {
        struct insn insn;
        if (find_copy(b, va) || !has_room(b) || !may_copy(b, va, &insn) || !can_copy(b, &insn)) {
            emit8(b, 0xe9);
            emit_fixup(b, va);
            return;
        }
        note_copy(b, va);
        uint32_t before = b->len;
        uint64_t next = copy_one(b, va, &insn);
        if (!next && b->len == before) { /* it could not be adjusted: leave in front of it */
            forget_copy(b, va);
            emit8(b, 0xe9);
            emit_fixup(b, va);
            return;
        }
        va = next;
    }
}

/* ---- behind the last instruction ---- */

/* Where return addresses are compared with those in the trace; unknown ones are noted, so that the
 * next trace can contain the caller too. */
static void emit_return_stub(struct builder *b)
{
    static const uint8_t load_return[] = {0x48, 0x8b, 0x0c, 0x24}; /* mov rcx, [rsp] */
    static const uint8_t pop[] = {0x48, 0x8d, 0x64, 0x24, 0x08};   /* lea rsp, [rsp + 8] */
    uint32_t stub = b->len;

    for (unsigned i = 0; i < b->ret_count; i++)
        set_rel32(b, b->rets[i], stub);
    save_rcx_rdx(b);
    for (unsigned i = 0; i < b->return_count; i++) {
        if (!find_copy(b, b->returns[i]))
            continue;
        emit(b, load_return, sizeof load_return);
        load_rdx(b, 0 - b->returns[i]);
        emit_add_to_rcx(b, ENC_RCX, ENC_RDX);
        uint32_t other = emit_jump_unless_rcx_zero(b);
        restore_rcx_rdx(b);
        emit(b, pop, sizeof pop);
        emit8(b, 0xe9);
        emit_fixup(b, b->returns[i]);
        set_rel32(b, other, b->len);
    }
    emit(b, load_return, sizeof load_return);
    emit_word(b, 0x89, 0x0d, TRACE_SEEN);
    restore_rcx_rdx(b);
    emit8(b, 0xc3);
}

/* mov dword [TRACE_LEFT], low half of an address: without flags or registers. */
static void note_leaving(struct builder *b, uint64_t target)
{
    static const uint8_t store[] = {0xc7, 0x05};
    uint64_t word = b->f->base + TRACE_DATA_OFFSET + TRACE_LEFT * 8;

    emit(b, store, sizeof store);
    emit32(b, (uint32_t)(word - (here(b) + 8)));
    emit32(b, (uint32_t)target);
}

/* Jumps whose target is not in the trace leave it, and say where to. */
static void resolve_fixups(struct builder *b)
{
    static const uint8_t jump_far[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp [rip] */

    for (unsigned i = 0; i < b->fixup_count && !b->full; i++) {
        const struct fixup *fixup = &b->fixups[i];
        const struct trace_map *copy = find_copy(b, fixup->target);
        if (copy) {
            set_rel32(b, fixup->at, copy->offset);
            continue;
        }
        set_rel32(b, fixup->at, b->len);
        note_leaving(b, fixup->target);
        emit(b, jump_far, sizeof jump_far);
        emit64(b, fixup->target);
    }
}

bool trace_build(struct trace_filter *f, uint8_t *mapped, const struct trace_condition *conditions,
                 unsigned count)
{
    static struct builder b; /* large; one thread builds traces */
    b = (struct builder){
        .f = f,
        .memory = &f->vcpu->vm->memory,
        .code = mapped + TRACE_CODE_OFFSET,
        .words = (uint64_t *)(mapped + TRACE_DATA_OFFSET),
    };
    struct insn insn;

    assert(count >= 1 && count <= TRACE_CONDITIONS);
    f->map_count = 0;
    b.words[TRACE_SEEN] = b.words[TRACE_LEFT] = 0;
    if (!may_copy(&b, f->site, &insn) || !can_copy(&b, &insn))
        return false;
    emit_comparisons(&b, conditions, count);
    uint32_t before = b.len;
    uint64_t next = copy_one(&b, f->site, &insn);
    if (!next && b.len == before)
        return false;
    for (unsigned i = 0; i < f->learned_count; i++) {
        b.returns[b.return_count++] = f->learned[i];
        enqueue(&b, NEAR, f->learned[i]);
    }
    copy_run(&b, next);
    for (uint64_t va; has_room(&b) && dequeue(&b, &va);)
        if (!find_copy(&b, va))
            copy_run(&b, va);
    if (b.ret_count)
        emit_return_stub(&b);
    resolve_fixups(&b);
    return !b.full;
}
