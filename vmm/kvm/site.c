#include "vmm/kvm/site.h"

#include "mmu/walk.h"
#include "recording/event.h"

#define SSE_BYTES 16u

/* Flags with TF, or an exception's frame. */
static bool saves_or_loads_flags(const struct insn *insn)
{
    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_PUSHF:
    case ZYDIS_MNEMONIC_PUSHFD:
    case ZYDIS_MNEMONIC_PUSHFQ:
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPFQ:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_DIV: /* may raise #DE */
    case ZYDIS_MNEMONIC_IDIV:
        return true;
    default:
        return false;
    }
}

static bool category_is_plain(const struct insn *insn)
{
    const ZydisDecodedInstruction *info = &insn->info;

    if (insn_leaves(insn))
        return false;
    switch (info->meta.category) {
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_RDWRFSGS:
    case ZYDIS_CATEGORY_SEGOP:
    case ZYDIS_CATEGORY_MISC: /* CPUID, PAUSE and the like; LEA too, see below */
        return info->mnemonic == ZYDIS_MNEMONIC_LEA;
    default:
        break;
    }
    switch (info->mnemonic) {
    case ZYDIS_MNEMONIC_CLI:
    case ZYDIS_MNEMONIC_STI:
    case ZYDIS_MNEMONIC_PAUSE:
        return false;
    default:
        return !saves_or_loads_flags(insn);
    }
}

/* Every byte of the operand is mapped so that the access cannot fault, and, but with `or_device`,
 * not exit either. */
static bool operand_is_mapped(const struct guest_memory *m, const struct insn *insn,
                              const ZydisDecodedOperand *op, const struct kvm_regs *regs,
                              const struct kvm_sregs *sregs, bool or_device)
{
    struct translation t;
    uint64_t va;
    unsigned bytes = op->size / 8;

    if (!insn_address(insn, op, regs, sregs, &va))
        return false;
    if (op->element_count && insn_pushes(op))
        va -= bytes;
    if (bytes == SSE_BYTES && va % SSE_BYTES) /* some may be unaligned, and others are a #GP */
        return false;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t at = i ? va + (bytes ? bytes - 1 : 0) : va;
        if (!walk(m, sregs->cr3, at, &t) || !(or_device || guest_memory_at(m, t.gpa, 1)))
            return false;
        if (sregs->ss.dpl == 3 && !t.user)
            return false;
        if ((op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) && !t.writable)
            return false;
    }
    return true;
}

static bool loads_segment(const ZydisDecodedOperand *op)
{
    return op->type == ZYDIS_OPERAND_TYPE_REGISTER &&
           (op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) &&
           ZydisRegisterGetClass(op->reg.value) == ZYDIS_REGCLASS_SEGMENT;
}

/* Quality by what the instruction works on. */
static enum site_quality operand_quality(const struct guest_memory *m, const struct insn *insn,
                                         const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                                         bool or_device)
{
    enum site_quality quality = SITE_GOOD;

    for (unsigned i = 0; i < insn->info.operand_count; i++) {
        const ZydisDecodedOperand *op = &insn->operands[i];
        if (loads_segment(op))
            return SITE_UNSUITABLE; /* MOV SS shadows interrupts */
        if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type == ZYDIS_MEMOP_TYPE_AGEN ||
            insn_touches_nothing(insn))
            continue;
        if (!operand_is_mapped(m, insn, op, regs, sregs, or_device))
            return SITE_UNSUITABLE;
        quality = SITE_MEMORY;
    }
    return quality;
}

static bool is_direct_jump(const struct insn *insn)
{
    return (insn->info.meta.category == ZYDIS_CATEGORY_COND_BR ||
            insn->info.meta.category == ZYDIS_CATEGORY_UNCOND_BR) &&
           insn->operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
}

#define REPEATED (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)

enum site_quality site_quality(const struct guest_memory *m, const struct insn *insn,
                               const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    if (!category_is_plain(insn) ||
        (insn->info.attributes & (REPEATED | ZYDIS_ATTRIB_IS_PRIVILEGED)))
        return SITE_UNSUITABLE;
    const enum site_quality quality = operand_quality(m, insn, regs, sregs, false);
    if (quality != SITE_UNSUITABLE && (insn->info.meta.category == ZYDIS_CATEGORY_X87_ALU ||
                                       insn->info.meta.category == ZYDIS_CATEGORY_FCMOV))
        return SITE_UNCOPIED;
    return quality == SITE_GOOD && is_direct_jump(insn) ? SITE_JUMP : quality;
}

bool site_uses_sse(const struct insn *insn)
{
    switch (insn->info.meta.isa_ext) {
    case ZYDIS_ISA_EXT_SSE:
    case ZYDIS_ISA_EXT_SSE2:
    case ZYDIS_ISA_EXT_SSE3:
    case ZYDIS_ISA_EXT_SSSE3:
    case ZYDIS_ISA_EXT_SSE4:
        return true;
    default:
        return false;
    }
}

bool site_uses_fpu(const struct insn *insn)
{
    switch (insn->info.meta.isa_ext) {
    case ZYDIS_ISA_EXT_X87:
    case ZYDIS_ISA_EXT_MMX:
    case ZYDIS_ISA_EXT_XSAVE:
        return true;
    default:
        return site_uses_sse(insn) || insn->info.meta.category == ZYDIS_CATEGORY_FCMOV;
    }
}

static bool hides_step(const struct guest_memory *m, const struct insn *insn,
                       const struct kvm_regs *regs, const struct kvm_sregs *sregs, bool or_device)
{
    /* VEX and its kind are #UD: the guest's CPUID has no AVX, nor 3DNow. */
    if (insn->info.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY || regs->rflags & RFLAGS_TF ||
        (sregs->cr0 & (CR0_EM | CR0_TS) && site_uses_fpu(insn)) || saves_or_loads_flags(insn))
        return false;
    switch (insn->info.meta.category) {
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
        return false;
    default:
        return operand_quality(m, insn, regs, sregs, or_device) != SITE_UNSUITABLE;
    }
}

bool site_hides_step(const struct guest_memory *m, const struct insn *insn,
                     const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    return hides_step(m, insn, regs, sregs, true);
}

bool site_can_step(const struct guest_memory *m, const struct insn *insn,
                   const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    switch (insn->info.mnemonic) {
    case ZYDIS_MNEMONIC_PAUSE:
    case ZYDIS_MNEMONIC_LEAVE:
        break;
    default:
        if (!category_is_plain(insn) || (insn->info.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED))
            return false;
    }
    return hides_step(m, insn, regs, sregs, false);
}
