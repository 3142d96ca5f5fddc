#ifndef MMU_INSN_H
#define MMU_INSN_H

#include <Zydis/Zydis.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/x86.h"
#include "mmu/memory.h"

struct insn {
    uint64_t va;
    uint8_t bytes[INSN_MAX];
    size_t available; /* bytes that could be read */
    ZydisDecodedInstruction info;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

/* Decode the instruction at linear address va, of code in sregs' code segment (64, 32 or 16 bits).
 * False: not mapped, or not an instruction. */
bool insn_decode(const struct guest_memory *m, const struct kvm_sregs *sregs, uint64_t va,
                 struct insn *out);

/* The same of up to INSN_MAX bytes of 64-bit code that were read before. */
bool insn_decode_bytes(uint64_t va, const uint8_t *bytes, size_t len, struct insn *out);

/* Intel syntax of the instruction at va, for reports; "(bad)" or "(unmapped)" when there is none.
 */
void insn_format(const struct guest_memory *m, const struct kvm_sregs *sregs, uint64_t va,
                 char *text, size_t size);

/*
 * General registers have two numberings: that of struct kvm_regs (RAX, RBX, RCX, ...) and that of
 * instructions (RAX, RCX, RDX, ...). These tables, with 16 entries, lead from one to the other.
 */
extern const uint8_t insn_encoding_of[16]; /* by index in struct kvm_regs */
extern const uint8_t insn_index_of[16];    /* by encoded number */

/* The 64-bit value of a general register of any width (its full register), RIP excluded; 0 for
 * other registers. */
uint64_t insn_register(const struct kvm_regs *regs, ZydisRegister reg);

/*
 * The general registers among the operands, hidden ones included, on which the instruction acts in
 * one of these ways (ZYDIS_OPERAND_ACTION_MASK_...): bits in the order of struct kvm_regs. Those
 * that are part of an address are not counted.
 */
uint32_t insn_registers(const struct insn *insn, ZydisOperandActions actions);

/* Whether the instruction leaves for the world outside the CPU or for its kernel: port I/O, INT n,
 * system calls, virtualization. */
bool insn_leaves(const struct insn *insn);

/* Whether its memory operand is none: NOP, prefetches. */
bool insn_touches_nothing(const struct insn *insn);

/* Whether it is what PUSH or CALL writes, below the address of its operand. */
bool insn_pushes(const ZydisDecodedOperand *op);

/* The segment of a memory operand; NULL: it has neither base nor limit, as most in 64-bit code. */
const struct kvm_segment *insn_segment(const struct insn *insn, const ZydisDecodedOperand *op,
                                       const struct kvm_sregs *sregs);

/* The linear address of a memory operand; false when it has none, or many. */
bool insn_address(const struct insn *insn, const ZydisDecodedOperand *op,
                  const struct kvm_regs *regs, const struct kvm_sregs *sregs, uint64_t *va);

#endif
