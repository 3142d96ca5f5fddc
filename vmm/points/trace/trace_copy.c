/* Copying the guest's code into a trace: see vmm/points/trace/trace_code.h. */
#include <assert.h>
#include <string.h>

#include "mmu/walk.h"
#include "vmm/points/trace/trace_code.h"

/* Targets that one request may come across. */
#define WORK_MAX 64u

/* ---- places ---- */

static struct trace_place *find_place(struct trace *t, uint64_t original)
{
    uint32_t i = (uint32_t)(original * 0x9e3779b97f4a7c15ull >> 48);

    _Static_assert(TRACE_HASH == 1u << 16 && TRACE_HASH >= 2 * TRACE_PLACES,
                   "the hash table stays half empty");
    while (t->hash[i] && t->place[t->hash[i] - 1].original != original)
        i = (i + 1) % TRACE_HASH;
    if (!t->hash[i]) {
        if (t->place_count == TRACE_PLACES) {
            t->full = true;
            return NULL;
        }
        t->place[t->place_count++] = (struct trace_place){.original = original};
        t->hash[i] = t->place_count;
    }
    return &t->place[t->hash[i] - 1];
}

/* The copy of an original address begins at `copy`. */
static void begin_copy(struct trace *t, struct trace_place *place, uint32_t copy)
{
    assert(!place->copy);
    place->copy = copy;
    for (uint32_t i = place->requests; i; i = t->request[i - 1].next)
        emit_patch_rel32(t, t->request[i - 1].rel32, place->copy);
    place->requests = 0;
}

const struct trace_map *trace_find(const struct trace *t, uint32_t offset)
{
    unsigned low = 0, high = t->map_count; /* the last entry that is not above */

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (t->map[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &t->map[low - 1] : NULL;
}

/* A rel32 to an original address: to its copy, or to a request for one. */
static void emit_rel32_to_original(struct trace *t, uint64_t target)
{
    struct trace_place *place = find_place(t, target);

    if (!place || t->request_count == TRACE_REQUESTS) {
        t->full = true;
        return;
    }
    if (place->copy) {
        emit_rel32_to(t, place->copy);
        return;
    }
    t->request[t->request_count++] =
        (struct trace_request){.target = target, .rel32 = t->len, .next = place->requests};
    place->requests = t->request_count;
    emit32(t, 0);
}

/* The way out in front of an instruction that is not copied. User code just goes on there; for
 * kernel code the trace must be taken away first. */
static void emit_way_out(struct trace *t, uint64_t target)
{
    if (t->cpl == 3) {
        emit_leave(t, target);
        return;
    }
    emit8(t, 0xe9);
    t->request[t->request_count++] =
        (struct trace_request){.target = target, .rel32 = t->len, .leave = true};
    emit32(t, 0);
}

/* ---- instructions ---- */

static bool has_direct_target(const struct insn *insn, uint64_t *target)
{
    if (insn->operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE ||
        !insn->operands[0].imm.is_relative)
        return false;
    *target = insn->va + insn->info.length + (uint64_t)insn->operands[0].imm.value.s;
    return true;
}

/* push of a 64-bit constant, without a register and without flags. */
static void emit_push(struct trace *t, uint64_t value)
{
    static const uint8_t store_high[] = {0xc7, 0x44, 0x24, 0x04};

    emit8(t, 0x68);
    emit32(t, (uint32_t)value);
    if ((uint64_t)(int64_t)(int32_t)value != value) {
        emit(t, store_high, sizeof store_high);
        emit32(t, (uint32_t)(value >> 32));
    }
}

/* The encoded number of a low register that the instruction has nothing to do with; neither RSP
 * nor RBP, which mean something else in addresses. */
static unsigned free_register(const struct insn *insn)
{
    const uint32_t used =
        insn_registers(insn, ZYDIS_OPERAND_ACTION_MASK_READ | ZYDIS_OPERAND_ACTION_MASK_WRITE);
    static const uint8_t candidates[] = {0, 1, 2, 3, 6, 7};
    unsigned i = 0;

    while (used >> insn_index_of[candidates[i]] & 1) {
        i++;
        assert(i < sizeof candidates); /* CMPXCHG8B uses four, nothing more */
    }
    return candidates[i];
}

/* An instruction with a RIP-relative operand out of reach: a borrowed register holds the address.
 */
static bool copy_far_operand(struct trace *t, const struct insn *insn, uint64_t address)
{
    const unsigned modrm = insn->info.raw.modrm.offset, disp = insn->info.raw.disp.offset;
    uint8_t bytes[INSN_MAX];

    if (insn->info.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY || insn->info.raw.rex.B ||
        insn->info.raw.rex.X || insn->info.address_width != 64 || disp != modrm + 1)
        return false;
    memcpy(bytes, insn->bytes, sizeof bytes);
    if ((uint64_t)(int32_t)address == address) {
        bytes[modrm] = (uint8_t)((bytes[modrm] & 0x38) | 4);
        emit(t, bytes, modrm + 1);
        emit8(t, 0x25);
        emit32(t, (uint32_t)address);
        emit(t, bytes + disp + 4, insn->info.length - (disp + 4));
        return true;
    }
    unsigned reg = free_register(insn);
    bytes[modrm] = (uint8_t)((bytes[modrm] & 0x38) | reg);
    emit_save(t, reg, WORD_BORROW);
    emit_constant(t, reg, address);
    t->map[t->map_count - 1].borrowed = 1 + insn_index_of[reg];
    emit(t, bytes, modrm + 1);
    emit(t, bytes + disp + 4, insn->info.length - (disp + 4));
    emit_load(t, reg, WORD_BORROW);
    return true;
}

/*
 * QEMU (7.2) gets the flags behind these from what was the last instruction to set any when its
 * block of code was entered, and takes that one's flags from operands of later ones: behind an exit
 * RFLAGS holds bits of an address then, VM among them, and KVM does not step over the HLT. They are
 * right where the block begins with it. Guests hardly ever come to an exit between this instruction
 * and the next that sets flags; a trace may end there.
 */
static void begin_block(struct trace *t, const struct insn *insn)
{
    static const uint8_t jump_to_next[] = {0xeb, 0};

    if (insn->info.mnemonic == ZYDIS_MNEMONIC_CMPXCHG8B ||
        insn->info.mnemonic == ZYDIS_MNEMONIC_CMPXCHG16B)
        emit(t, jump_to_next, sizeof jump_to_next);
}

/* A plain instruction; RIP-relative operands are adjusted. False when that is impossible. */
static bool copy_plain(struct trace *t, const struct insn *insn)
{
    uint8_t bytes[INSN_MAX];
    unsigned len = insn->info.length;

    begin_block(t, insn);
    memcpy(bytes, insn->bytes, len);
    if (insn->info.attributes & ZYDIS_ATTRIB_IS_RELATIVE) {
        if (insn->info.raw.disp.size != 32)
            return false;
        uint64_t address = insn->va + len + (uint64_t)insn->info.raw.disp.value;
        int64_t disp = (int64_t)(address - (emit_here(t) + len));
        if (disp != (int32_t)disp)
            return copy_far_operand(t, insn, address);
        uint32_t low = (uint32_t)disp;
        memcpy(bytes + insn->info.raw.disp.offset, &low, 4);
    }
    emit(t, bytes, len);
    return true;
}

static void copy_conditional(struct trace *t, const struct insn *insn, uint64_t target)
{
    uint8_t opcode = insn->info.opcode;

    if (insn->info.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && opcode >= 0xe0 && opcode <= 0xe3) {
        /* LOOP and JRCXZ have short forms only: jump around a long jump. */
        if (insn->info.address_width != 64)
            emit8(t, 0x67);
        const uint8_t bytes[] = {opcode, 2, 0xeb, 5, 0xe9};
        emit(t, bytes, sizeof bytes);
    } else {
        emit8(t, 0x0f);
        emit8(t, (uint8_t)(0x80 | (opcode & 15)));
    }
    emit_rel32_to_original(t, target);
}

/* RCX = the operand of an indirect jump or call (FF /4, FF /2) by a MOV with the same operand; the
 * guest's RCX is saved. */
static bool copy_target(struct trace *t, const struct insn *insn)
{
    const unsigned modrm = insn->info.raw.modrm.offset;
    uint8_t bytes[INSN_MAX + 1];
    unsigned len = 0;

    for (unsigned i = 0; i + 1 < modrm; i++) {
        uint8_t b = insn->bytes[i];
        if (b == 0x66)
            return false;
        if (b >= 0x64 && b <= 0x67) /* FS, GS, address size; the others mean nothing here */
            bytes[len++] = b;
    }
    if (insn->bytes[modrm - 1] != 0xff || insn->info.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
        return false;
    if ((insn->info.attributes & ZYDIS_ATTRIB_IS_RELATIVE) &&
        (insn->info.raw.rex.B || insn->info.raw.rex.X || insn->info.address_width != 64))
        return false;
    bytes[len++] = (uint8_t)(0x48 | insn->info.raw.rex.X << 1 | insn->info.raw.rex.B);
    bytes[len++] = 0x8b;
    bytes[len++] = (uint8_t)((insn->bytes[modrm] & 0xc7) | ENC_RCX << 3);
    unsigned rest = insn->info.length - (modrm + 1);
    memcpy(bytes + len, insn->bytes + modrm + 1, rest);
    len += rest;
    emit_save(t, ENC_RCX, WORD_RCX);
    if (insn->info.attributes & ZYDIS_ATTRIB_IS_RELATIVE) {
        uint64_t address = insn->va + insn->info.length + (uint64_t)insn->info.raw.disp.value;
        int64_t disp = (int64_t)(address - (emit_here(t) + len));
        if (disp != (int32_t)disp && (uint64_t)(int32_t)address == address) {
            bytes[len - 5] = ENC_RCX << 3 | 4;
            bytes[len - 4] = 0x25;
            emit(t, bytes, len - 3);
            emit32(t, (uint32_t)address);
            return true;
        }
        if (disp != (int32_t)disp) { /* out of reach: RCX holds the address */
            emit_save(t, ENC_RCX, WORD_BORROW);
            t->map[t->map_count - 1].borrowed = 1 + insn_index_of[ENC_RCX];
            emit_constant(t, ENC_RCX, address);
            bytes[len - 5] = ENC_RCX << 3 | ENC_RCX;
            emit(t, bytes, len - 4);
            return true;
        }
        uint32_t low = (uint32_t)disp;
        memcpy(bytes + len - 4, &low, 4);
    }
    emit(t, bytes, len);
    return true;
}

static bool copy_indirect_jump(struct trace *t, const struct insn *insn)
{
    if (!copy_target(t, insn))
        return false;
    emit_dispatch_jump(t);
    return true;
}

/* The push can fault: the guest's RCX must be back by then. */
static bool copy_indirect_call(struct trace *t, const struct insn *insn)
{
    if (!copy_target(t, insn))
        return false;
    emit_save(t, ENC_RCX, WORD_TARGET);
    emit_load(t, ENC_RCX, WORD_RCX);
    emit_push(t, insn->va + insn->info.length);
    emit_load(t, ENC_RCX, WORD_TARGET);
    emit_dispatch_jump(t);
    return true;
}

static void copy_return(struct trace *t, const struct insn *insn)
{
    static const uint8_t pop_rcx = 0x59, add_to_rsp[] = {0x48, 0x8d, 0xa4, 0x24};

    emit_save(t, ENC_RCX, WORD_RCX);
    emit(t, &pop_rcx, 1);
    if (insn->info.opcode == 0xc3) {
        trace_emit_return(t);
        return;
    }
    emit(t, add_to_rsp, sizeof add_to_rsp);
    emit32(t, (uint32_t)insn->operands[0].imm.value.u & 0xffff);
    emit_dispatch_jump(t);
}

/* CR3 is not what the guest loaded, debug registers would act on the copy, and SS (which user code
 * may load) would not be what it was at the start. */
static bool has_special_register(const struct insn *insn)
{
    for (unsigned i = 0; i < insn->info.operand_count; i++) {
        const ZydisDecodedOperand *op = &insn->operands[i];
        if (op->type != ZYDIS_OPERAND_TYPE_REGISTER)
            continue;
        if (ZydisRegisterGetClass(op->reg.value) == ZYDIS_REGCLASS_CONTROL)
            return true;
        if (!(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            continue;
        switch (ZydisRegisterGetClass(op->reg.value)) {
        case ZYDIS_REGCLASS_DEBUG:
        case ZYDIS_REGCLASS_SEGMENT:
            return true;
        default:
            break;
        }
    }
    return false;
}

/* Control instructions of the x87 unit do not note where they are (Intel SDM vol. 1, 8.1.8 and
 * 8.3.11). Kernels begin each use of SSE with an FNINIT. */
static bool is_x87_control(ZydisMnemonic mnemonic)
{
    switch (mnemonic) {
    case ZYDIS_MNEMONIC_FNINIT:
    case ZYDIS_MNEMONIC_FNCLEX:
    case ZYDIS_MNEMONIC_FNSTCW:
    case ZYDIS_MNEMONIC_FNSTSW:
    case ZYDIS_MNEMONIC_FLDCW:
        return true;
    default:
        return false;
    }
}

/* What runs in the copy as it does in the original. At CPL0 that includes most privileged
 * instructions: they do not depend on RIP. Not those that change how the trace is mapped or how the
 * kernel is entered. */
static bool is_plain(const struct trace *t, const struct insn *insn)
{
    const ZydisDecodedInstruction *info = &insn->info;

    if ((info->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) && t->cpl != 0)
        return false;
    if (has_special_register(insn) || insn_leaves(insn))
        return false;
    switch (info->mnemonic) {
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_LIDT:
    case ZYDIS_MNEMONIC_SIDT:
    case ZYDIS_MNEMONIC_LGDT:
    case ZYDIS_MNEMONIC_LTR:
    case ZYDIS_MNEMONIC_LLDT:
    case ZYDIS_MNEMONIC_INVLPG: /* code may be mapped anew */
    case ZYDIS_MNEMONIC_INVPCID:
        return false;
    case ZYDIS_MNEMONIC_POPF: /* may set TF */
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPFQ:
        return t->cpl == 0;
    default:
        break;
    }
    switch (info->meta.category) {
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_X87_ALU: /* FXSAVE shows where they were */
        return is_x87_control(info->mnemonic);
    case ZYDIS_CATEGORY_FCMOV:
        return false;
    case ZYDIS_CATEGORY_SYSTEM:
        return t->cpl == 0;
    default:
        return true;
    }
}

/* Targets still to be copied for this request. */
struct work {
    uint64_t va[WORK_MAX];
    unsigned head, len;
};

static void add_work(struct work *work, uint64_t va)
{
    if (work->len < WORK_MAX)
        work->va[work->len++] = va;
}

enum copied { NOT_COPIED, GOES_ON, ENDS };

/* Copy one instruction; *next is where the code goes on. */
static enum copied copy_insn(struct trace *t, const struct insn *insn, struct work *work,
                             uint64_t *next)
{
    const uint64_t after = insn->va + insn->info.length;
    uint64_t target;
    bool direct = has_direct_target(insn, &target);

    *next = after;
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
        if (!direct || insn->info.mnemonic == ZYDIS_MNEMONIC_XBEGIN)
            return NOT_COPIED;
        copy_conditional(t, insn, target);
        add_work(work, target);
        return GOES_ON;
    case ZYDIS_CATEGORY_UNCOND_BR:
        if (!direct)
            return copy_indirect_jump(t, insn) ? ENDS : NOT_COPIED;
        *next = target;
        return GOES_ON;
    case ZYDIS_CATEGORY_CALL:
        if (!direct)
            return copy_indirect_call(t, insn) ? ENDS : NOT_COPIED;
        emit_push(t, after);
        add_work(work, after);
        *next = target;
        return GOES_ON;
    case ZYDIS_CATEGORY_RET:
        if (insn->info.opcode != 0xc3 && insn->info.opcode != 0xc2)
            return NOT_COPIED;
        copy_return(t, insn);
        return ENDS;
    default:
        return is_plain(t, insn) && copy_plain(t, insn) ? GOES_ON : NOT_COPIED;
    }
}

static bool has_room(const struct trace *t)
{
    return !t->full && t->len + TRACE_TAIL_BYTES < TRACE_CODE_BYTES &&
           t->map_count < TRACE_PLACES && t->place_count + 8 < TRACE_PLACES &&
           t->request_count + 8 < TRACE_REQUESTS;
}

/* ---- code that may change ---- */

static bool writes_memory(const struct insn *insn)
{
    for (unsigned i = 0; i < insn->info.operand_count; i++)
        if (insn->operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
            (insn->operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
            return true;
    return false;
}

/* Bytes of the guest's code, by address, that a guard of this run has found to be what is copied.
 * Nothing was written since. */
struct guarded {
    uint64_t from, to;
};

static bool is_guarded(const struct guarded *guarded, uint64_t va, unsigned len)
{
    return va >= guarded->from && va < guarded->to && len <= guarded->to - va;
}

/*
 * Check that the guest's bytes from `from` on, within a page, are what was copied; they belong to
 * the instruction at va. As they stand there while the trace runs: with the site's breakpoint.
 * Returns how far the guard reaches.
 */
static uint64_t emit_guard(struct trace *t, uint64_t va, uint64_t from)
{
    const uint64_t page_end = (from | (PAGE_BYTES - 1)) + 1;
    const unsigned bytes = page_end - from >= 16 ? 16 : 8;
    struct translation at;
    uint8_t expected[16];

    if (page_end - from < bytes)
        from = page_end - bytes;
    assert(walk(t->memory, t->root, from, &at)); /* it was read just now */
    memcpy(expected, guest_memory_at(t->memory, at.gpa, bytes), bytes);
    if (t->hlt_on_site && t->site_gpa - at.gpa < bytes)
        expected[t->site_gpa - at.gpa] = HLT;
    const uint32_t rel32 = trace_emit_guard(t, from, expected, bytes / 8);
    if (!t->full)
        t->request[t->request_count++] =
            (struct trace_request){.target = va, .rel32 = rel32, .stale = true};
    return from + bytes;
}

/* The same for a whole instruction, from its first byte on. */
static struct guarded emit_guards(struct trace *t, const struct insn *insn)
{
    struct guarded guarded = {.from = insn->va, .to = insn->va};

    while (guarded.to < insn->va + insn->info.length)
        guarded.to = emit_guard(t, insn->va, guarded.to);
    assert(is_guarded(&guarded, insn->va, insn->info.length));
    return guarded;
}

/* What follows is the copy of the instruction at va, or stands for it, from `offset` on. */
static void add_to_map(struct trace *t, uint64_t va, uint32_t offset)
{
    assert(!t->map_count || t->map[t->map_count - 1].offset <= offset); /* trace_find() */
    t->map[t->map_count++] = (struct trace_map){.original = va, .offset = offset};
}

/* Behind it addresses begin at 0 again: neither guards nor code go on there. */
static bool is_at_top(uint64_t va)
{
    return va > UINT64_MAX - 2 * INSN_MAX;
}

/*
 * Copy from va on, up to a place that is known, a jump that is looked up, or an instruction that is
 * not copied or cannot be read.
 *
 * Whoever runs the copy of an instruction whose bytes may change has passed a guard of them, and
 * nothing that writes memory since: a jump to such an instruction must come to a guard, so only one
 * with a guard of its own has a copy to jump to.
 */
static void copy_run(struct trace *t, uint64_t va, struct work *work, unsigned *budget)
{
    struct guarded guarded = {0, 0};

    for (bool first = true;; first = false) {
        struct trace_place *place = find_place(t, va);
        struct insn insn;
        uint64_t next;
        if (!place || place->copy || !*budget || !has_room(t) || is_at_top(va) ||
            !trace_read_insn(t, va, &insn)) {
            if (!first) {
                emit8(t, 0xe9);
                emit_rel32_to_original(t, va);
            }
            return;
        }
        const bool is_site = va == t->site;
        const bool may_change = trace_insn_may_change(t, &insn);
        /* The site's copy begins anew: all passes come to its compare. */
        const bool guards = may_change && (is_site || !is_guarded(&guarded, va, insn.info.length));
        if (is_site)
            trace_begin_site(t);
        const uint32_t at = is_site ? t->quick : t->len;
        if (guards || !may_change)
            begin_copy(t, place, at);
        add_to_map(t, va, at);
        --*budget;
        if (guards)
            guarded = emit_guards(t, &insn);
        assert(!may_change || is_guarded(&guarded, va, insn.info.length));
        if (writes_memory(&insn))
            guarded = (struct guarded){0, 0};
        const unsigned requests = t->request_count;
        const uint32_t body = t->len;
        t->map[t->map_count - 1].body = body;
        const enum copied copied = copy_insn(t, &insn, work, &next);
        if (copied == NOT_COPIED) {
            /* Leave in front of it, always. */
            assert(t->request_count == requests);
            t->len = body;
            emit_way_out(t, va);
        }
        if (is_site) {
            t->site_copied = copied != NOT_COPIED;
            trace_emit_compare(t);
        }
        if (copied != GOES_ON)
            return;
        va = next;
    }
}

uint32_t trace_copy(struct trace *t, uint64_t va)
{
    const unsigned requests = t->request_count;
    struct trace_place *place = find_place(t, va);
    struct work work = {.len = 0};
    unsigned budget = TRACE_RUN_INSNS;

    if (place && place->copy)
        return place->copy;
    if (!has_room(t)) {
        t->full = true;
        return 0;
    }
    /* The guest's code is about to be executed here. */
    walk_touch(t->memory, t->root, va);
    add_work(&work, va);
    for (; work.head < work.len && budget && has_room(t); work.head++)
        copy_run(t, work.va[work.head], &work, &budget);
    for (unsigned i = requests; i < t->request_count; i++) {
        struct trace_request *request = &t->request[i];
        struct trace_place *target = find_place(t, request->target);
        request->at = t->len;
        if (request->leave || request->stale || (target && !target->copy))
            emit_patch_rel32(t, request->rel32, t->len);
        emit8(t, HLT);
    }
    place = find_place(t, va);
    return place && !t->full ? place->copy : 0;
}

/* The request whose HLT is at an offset; NULL when none is. */
static const struct trace_request *find_request(const struct trace *t, uint32_t at)
{
    unsigned low = 0, high = t->request_count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (t->request[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->request_count && t->request[low].at == at ? &t->request[low] : NULL;
}

/*
 * The code at va, whose copy begins with a guard, is not what was copied: copy it again. Whoever
 * jumps to the old copy comes to the new one. 0 when all copies must be made again.
 */
static uint32_t renew(struct trace *t, uint64_t va)
{
    struct trace_place *place = find_place(t, va);

    if (!place || !place->copy || va == t->site)
        return 0;
    trace_read_again(t, va);
    const uint32_t old = place->copy, first = place->first ? place->first : old;
    place->copy = 0;
    place->first = first;
    const uint32_t copy = trace_copy(t, va);
    if (!copy)
        return 0;
    emit_detour(t, first, copy);
    emit_detour(t, old, copy);
    return copy;
}

bool trace_extend(struct trace *t, uint32_t offset, bool may_copy, uint32_t *copy, uint64_t *target)
{
    const bool miss = offset == t->miss_at;
    const struct trace_request *request = miss ? NULL : find_request(t, offset);

    if (!miss && !request)
        return false;
    *target = miss ? t->words[WORD_TARGET] : request->target;
    const bool stale = request && request->stale;
    *copy = 0;
    if (!may_copy || (request && request->leave))
        return true;
    *copy = stale ? renew(t, *target) : trace_copy(t, *target);
    if (*copy && miss) {
        trace_add_target(t, *target, *copy);
        if (t->words[WORD_SITE] && !t->full)
            trace_predict_return(t, (uint32_t)t->words[WORD_SITE], *target, *copy);
    }
    if (t->full || (stale && !*copy)) { /* begin again with what is needed now */
        trace_reset(t);
        *copy = trace_copy(t, *target);
    }
    return true;
}
