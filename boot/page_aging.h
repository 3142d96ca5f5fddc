#ifndef BOOT_PAGE_AGING_H
#define BOOT_PAGE_AGING_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/code_gap.h"
#include "boot/kallsyms.h"

/*
 * Linux ages pages: it clears the Accessed bit of an entry of a page table and looks later whether
 * the CPU has set it again. On x86 it saves the flush of the TLB (arch/x86/mm/pgtable.c,
 * ptep_clear_flush_young()). Whether the next access sets the bit depends on what the TLB happens
 * to hold then, thus on when the vCPU exited; and which page is reclaimed depends on the bit.
 *
 * So the TLB is flushed there. Each BTR of the Accessed bit in these functions is replaced by a
 * CALL of the same instruction in a gap of the kernel's text, where a move of CR3 to itself follows
 * it; without PCID that flushes all that is not global, and no page that is aged is.
 */

/* Replace them in a piece of the kernel's code, of which `text` is in its file and `loaded` in
 * memory. Returns how many were replaced. */
unsigned page_aging_patch(const struct elf_extent *code, const uint8_t *text, uint8_t *loaded,
                          const struct kallsyms *symbols, struct code_gap *gap);

/* Whether the kernel has functions that age pages. */
bool page_aging_is_known(const struct kallsyms *symbols);

#endif
