#ifndef MMU_DIGEST_H
#define MMU_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "mmu/memory.h"
#include "mmu/page_sums.h"

/*
 * A digest of all guest RAM that is equal for equal memory, whether or not the host has allocated a
 * page: the sum over all non-zero pages of XXH64(page, seed = GFN), or of XXH3-64 where the memory
 * says so. Being a sum it can be updated page by page. (XXH64 does without SSE, which takes QEMU,
 * the emulated host, fourteen times as long; a real CPU takes the same time for both.)
 *
 * Accessed and Dirty bits of page-table entries depend on what the TLB held, which no recording can
 * control (docs/nondeterminism.md), so they are masked in pages that look like page tables: every
 * odd 64-bit word is a present entry that points into RAM or is reserved-bit clean.
 *
 * sums: what names the pages that differ from those of another memory; NULL: nobody asks.
 */
uint64_t memory_digest(const struct guest_memory *m, struct page_sums *sums);

/* The part of m's digest that one page contributes, there or a copy; 0 for a zero page. Pages are
 * aligned to 8 bytes. */
uint64_t page_digest(const struct guest_memory *m, const void *page, uint64_t gfn);

/* The same of a page that is known to be data: nothing is masked. */
uint64_t page_digest_of_data(const struct guest_memory *m, const void *page, uint64_t gfn);

bool page_is_zero(const void *page);

/* A page as its digest sees it. */
void page_as_it_counts(const void *page, uint64_t words[512]);

/* Whether a page looks like a page table, as above; and the mask, for words of one. */
bool page_looks_like_table(const void *page);
void page_table_mask(uint64_t *entries, unsigned count);

#endif
