#ifndef BOOT_CODE_GAP_H
#define BOOT_CODE_GAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot/boot_elf.h"

/*
 * Room for code of ours within a piece of a kernel's own: a gap between two of its functions, of
 * bytes that nothing runs (INT3).
 */
struct code_gap {
    size_t next, end; /* what is free of it: offsets into the piece of code */
};

/* Find the longest gap of the code, of which `text` are the bytes in the kernel's file. False: none
 * is long enough to be trusted. */
bool code_gap_find(const uint8_t *text, size_t len, struct code_gap *out);

/* Put code of ours there, in the `loaded` bytes of that piece of code. Returns its offset, 0 when
 * there is no room. */
size_t code_gap_put(struct code_gap *gap, uint8_t *loaded, const uint8_t *code, size_t len);

#define CODE_CALL 0xe8
#define CODE_JMP  0xe9
/* The length of both, with the 32-bit distance that follows. */
#define CODE_REL_BYTES 5u

/* Lead the CALL or JMP at va, of which the bytes are at insn, to target. */
void code_set_target(uint8_t *insn, uint64_t va, uint64_t target);
/* Where it leads. */
uint64_t code_target(const uint8_t *insn, uint64_t va);

#endif
