#ifndef BOOT_ENTRY_SITES_H
#define BOOT_ENTRY_SITES_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/boot_elf.h"
#include "boot/code_gap.h"
#include "boot/kallsyms.h"

/*
 * The guest counts how often it enters its kernel from user code, so that a place can be said by
 * that count and found again without looking at one pass after another. A jump leads the functions
 * of Linux that each system call or each exception of user code goes through to this, in a gap of
 * the kernel's text:
 *
 *         decq %gs:WORD
 *         jnz  1f
 *         hlt
 *     1:  (the instructions where the jump is now)
 *         jmp  (behind them)
 *
 * The word belongs to the CPU: it is the last one of the page with its GDT, of which Linux uses the
 * first 128 bytes. It is 0 at first and so counts down from 2^64; the HLT is not reached.
 */
#define ENTRY_SITES 4u
/* decq %gs:WORD; jnz over the hlt; hlt */
#define ENTRY_COUNT_BYTES 12u

struct entry_count {
    uint64_t gs_offset;  /* of the word; 0: nothing is counted */
    uint64_t start, end; /* where our code is */
    unsigned sites;      /* functions that count */
};

/* Have a Linux kernel that was loaded and has not run count, as far as this piece of its code has
 * the functions: `text` are the bytes in its file, `loaded` those in memory. */
void entry_sites_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                       const struct kallsyms *symbols, struct code_gap *gap,
                       struct entry_count *out);

/* Have the function at offset `at` of that code count, in out->gs_offset. False: its first
 * instructions cannot be moved, or the gap is full; then nothing has changed. */
bool entry_sites_count_at(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                          size_t at, struct code_gap *gap, struct entry_count *out);

/* The code that counts, as it lies at out->start. */
void entry_sites_code(uint64_t gs_offset, uint8_t out[ENTRY_COUNT_BYTES]);

#endif
