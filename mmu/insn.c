#include "mmu/insn.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mmu/walk.h"

enum code_width { CODE_64, CODE_32, CODE_16, CODE_WIDTHS };

static ZydisDecoder decoders[CODE_WIDTHS];

static void make_decoders(void)
{
    static const struct {
        ZydisMachineMode mode;
        ZydisStackWidth stack;
    } of[CODE_WIDTHS] = {
        [CODE_64] = {ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64},
        [CODE_32] = {ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32},
        [CODE_16] = {ZYDIS_MACHINE_MODE_LONG_COMPAT_16, ZYDIS_STACK_WIDTH_16},
    };

    for (unsigned i = 0; i < CODE_WIDTHS; i++) {
        ZyanStatus status = ZydisDecoderInit(&decoders[i], of[i].mode, of[i].stack);
        assert(ZYAN_SUCCESS(status));
    }
}

static const ZydisDecoder *decoder(enum code_width width)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_decoders);
    return &decoders[width];
}

static bool decode(enum code_width width, uint64_t va, const uint8_t *bytes, size_t len,
                   struct insn *out)
{
    assert(len <= INSN_MAX);
    out->va = va;
    out->available = len;
    memcpy(out->bytes, bytes, len);
    return len && ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder(width), out->bytes, len, &out->info,
                                                      out->operands));
}

bool insn_decode_bytes(uint64_t va, const uint8_t *bytes, size_t len, struct insn *out)
{
    return decode(CODE_64, va, bytes, len, out);
}

bool insn_decode(const struct guest_memory *m, const struct kvm_sregs *sregs, uint64_t va,
                 struct insn *out)
{
    const enum code_width width = sregs->cs.l ? CODE_64 : sregs->cs.db ? CODE_32 : CODE_16;
    uint8_t bytes[INSN_MAX];

    return decode(width, va, bytes, walk_read(m, sregs->cr3, va, bytes, INSN_MAX), out);
}

void insn_format(const struct guest_memory *m, const struct kvm_sregs *sregs, uint64_t va,
                 char *text, size_t size)
{
    struct insn insn;
    ZydisFormatter formatter;

    if (!insn_decode(m, sregs, va, &insn)) {
        snprintf(text, size, insn.available ? "(bad)" : "(unmapped)");
        return;
    }
    if (ZYAN_FAILED(ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL)) ||
        ZYAN_FAILED(ZydisFormatterFormatInstruction(&formatter, &insn.info, insn.operands,
                                                    insn.info.operand_count_visible, text, size, va,
                                                    NULL)))
        snprintf(text, size, "(bad)");
}

const uint8_t insn_encoding_of[16] = {0, 3, 1, 2, 6, 7, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
const uint8_t insn_index_of[16] = {0, 2, 3, 1, 6, 7, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};

/* The index in struct kvm_regs of a general register of any width; -1 for others. */
static int register_index(ZydisRegister reg)
{
    ZydisRegister full = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

    return ZydisRegisterGetClass(full) == ZYDIS_REGCLASS_GPR64
               ? insn_index_of[ZydisRegisterGetId(full)]
               : -1;
}

uint64_t insn_register(const struct kvm_regs *regs, ZydisRegister reg)
{
    int index = register_index(reg);

    return index < 0 ? 0 : ((const uint64_t *)regs)[index];
}

uint32_t insn_registers(const struct insn *insn, ZydisOperandActions actions)
{
    uint32_t mask = 0;

    for (unsigned i = 0; i < insn->info.operand_count; i++) {
        const ZydisDecodedOperand *op = &insn->operands[i];
        if (op->type != ZYDIS_OPERAND_TYPE_REGISTER || !(op->actions & actions))
            continue;
        int index = register_index(op->reg.value);
        if (index >= 0)
            mask |= 1u << index;
    }
    return mask;
}

bool insn_leaves(const struct insn *insn)
{
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_VTX:
        return true;
    default:
        return false;
    }
}

bool insn_touches_nothing(const struct insn *insn)
{
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_NOP:
    case ZYDIS_CATEGORY_WIDENOP:
    case ZYDIS_CATEGORY_PREFETCH:
        return true;
    default:
        return false;
    }
}

bool insn_pushes(const ZydisDecodedOperand *op)
{
    return op->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN &&
           (op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) &&
           ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, op->mem.base) ==
               ZYDIS_REGISTER_RSP;
}

static bool is_64_bit(const struct insn *insn)
{
    return insn->info.machine_mode == ZYDIS_MACHINE_MODE_LONG_64;
}

const struct kvm_segment *insn_segment(const struct insn *insn, const ZydisDecodedOperand *op,
                                       const struct kvm_sregs *sregs)
{
    const ZydisRegister of = op->mem.segment;

    if (of == ZYDIS_REGISTER_FS || of == ZYDIS_REGISTER_GS)
        return of == ZYDIS_REGISTER_FS ? &sregs->fs : &sregs->gs;
    if (is_64_bit(insn))
        return NULL;
    return of == ZYDIS_REGISTER_CS   ? &sregs->cs
           : of == ZYDIS_REGISTER_SS ? &sregs->ss
           : of == ZYDIS_REGISTER_ES ? &sregs->es
                                     : &sregs->ds;
}

/* What AL, and the number of a bit in a register, add to an address (Intel SDM vol. 2, XLAT and
 * BT).
 */
static uint64_t hidden_offset(const struct insn *insn, const ZydisDecodedOperand *op,
                              const struct kvm_regs *regs)
{
    const uint64_t bit = insn_register(regs, insn->operands[1].reg.value);

    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_XLAT:
        return (uint8_t)regs->rax;
    case ZYDIS_MNEMONIC_BT:
    case ZYDIS_MNEMONIC_BTS:
    case ZYDIS_MNEMONIC_BTR:
    case ZYDIS_MNEMONIC_BTC:
        if (insn->operands[1].type != ZYDIS_OPERAND_TYPE_REGISTER)
            return 0;
        return op->size == 64   ? (uint64_t)((int64_t)bit >> 6) * 8
               : op->size == 32 ? (uint64_t)((int64_t)(int32_t)bit >> 5) * 4
                                : (uint64_t)((int64_t)(int16_t)bit >> 4) * 2;
    default:
        return 0;
    }
}

bool insn_address(const struct insn *insn, const ZydisDecodedOperand *op,
                  const struct kvm_regs *regs, const struct kvm_sregs *sregs, uint64_t *va)
{
    assert(op->type == ZYDIS_OPERAND_TYPE_MEMORY);
    uint64_t at = op->mem.disp.has_displacement ? (uint64_t)op->mem.disp.value : 0;

    if (op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP)
        at += insn->va + insn->info.length;
    else if (op->mem.base != ZYDIS_REGISTER_NONE)
        at += insn_register(regs, op->mem.base);
    if (op->mem.index != ZYDIS_REGISTER_NONE && insn->info.mnemonic != ZYDIS_MNEMONIC_XLAT) {
        if (register_index(op->mem.index) < 0)
            return false;
        at += insn_register(regs, op->mem.index) * op->mem.scale;
    }
    at += hidden_offset(insn, op, regs);
    if (insn->info.address_width != 64)
        at = insn->info.address_width == 32 ? (uint32_t)at : (uint16_t)at;
    const struct kvm_segment *segment = insn_segment(insn, op, sregs);
    at += segment ? segment->base : 0;
    *va = is_64_bit(insn) ? at : (uint32_t)at;
    return true;
}
