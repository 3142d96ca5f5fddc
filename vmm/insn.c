#include "vmm/insn.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mmu/walk.h"

size_t insn_read(struct vcpu *vcpu, uint64_t va, void *data, size_t len)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    return walk_read(&vcpu->vm->memory, sregs.cr3, va, data, len);
}

static const ZydisDecoder *decoder(void)
{
    static ZydisDecoder d;
    static bool ready;

    if (!ready) {
        ZyanStatus status = ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
        assert(ZYAN_SUCCESS(status));
        ready = true;
    }
    return &d;
}

bool insn_decode_bytes(uint64_t va, const uint8_t *bytes, size_t len, struct insn *out)
{
    assert(len <= INSN_MAX);
    out->va = va;
    out->available = len;
    memcpy(out->bytes, bytes, len);
    return len && ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder(), out->bytes, len, &out->info,
                                                      out->operands));
}

bool insn_decode(const struct guest_memory *m, uint64_t cr3, uint64_t va, struct insn *out)
{
    uint8_t bytes[INSN_MAX];

    return insn_decode_bytes(va, bytes, walk_read(m, cr3, va, bytes, INSN_MAX), out);
}

void insn_format(const struct guest_memory *m, uint64_t cr3, uint64_t va, char *text, size_t size)
{
    struct insn insn;
    ZydisFormatter formatter;

    if (!insn_decode(m, cr3, va, &insn)) {
        snprintf(text, size, insn.available ? "(bad)" : "(unmapped)");
        return;
    }
    if (ZYAN_FAILED(ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_INTEL)) ||
        ZYAN_FAILED(ZydisFormatterFormatInstruction(&formatter, &insn.info, insn.operands,
                                                    insn.info.operand_count_visible, text, size, va,
                                                    NULL)))
        snprintf(text, size, "(bad)");
}

uint64_t insn_register(const struct kvm_regs *r, ZydisRegister reg)
{
    switch (ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg)) {
    case ZYDIS_REGISTER_RAX:
        return r->rax;
    case ZYDIS_REGISTER_RBX:
        return r->rbx;
    case ZYDIS_REGISTER_RCX:
        return r->rcx;
    case ZYDIS_REGISTER_RDX:
        return r->rdx;
    case ZYDIS_REGISTER_RSI:
        return r->rsi;
    case ZYDIS_REGISTER_RDI:
        return r->rdi;
    case ZYDIS_REGISTER_RSP:
        return r->rsp;
    case ZYDIS_REGISTER_RBP:
        return r->rbp;
    case ZYDIS_REGISTER_R8:
        return r->r8;
    case ZYDIS_REGISTER_R9:
        return r->r9;
    case ZYDIS_REGISTER_R10:
        return r->r10;
    case ZYDIS_REGISTER_R11:
        return r->r11;
    case ZYDIS_REGISTER_R12:
        return r->r12;
    case ZYDIS_REGISTER_R13:
        return r->r13;
    case ZYDIS_REGISTER_R14:
        return r->r14;
    case ZYDIS_REGISTER_R15:
        return r->r15;
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
    if (op->mem.index != ZYDIS_REGISTER_NONE) {
        if (ZydisRegisterGetClass(op->mem.index) != ZYDIS_REGCLASS_GPR64)
            return false;
        at += insn_register(regs, op->mem.index) * op->mem.scale;
    }
    if (insn->info.address_width != 64)
        at = (uint32_t)at;
    if (op->mem.segment == ZYDIS_REGISTER_FS)
        at += sregs->fs.base;
    else if (op->mem.segment == ZYDIS_REGISTER_GS)
        at += sregs->gs.base;
    *va = at;
    return true;
}
