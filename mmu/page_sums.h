#ifndef MMU_PAGE_SUMS_H
#define MMU_PAGE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "mmu/memory.h"

/*
 * What names the pages in which two memories differ, of which one is no longer there: 2.3 KB for a
 * memory of any size. Each page that is not zero is added to four of the cells, which its GFN
 * chooses. As all is sums, the cells of two memories differ by what differs in their pages alone.
 * Where that is one page, the quotient of two sums is its GFN, and it is taken out of its other
 * cells, and so on: some 60 pages are found so (an invertible Bloom lookup table).
 */
#define PAGE_SUM_ROWS  4u
#define PAGE_SUM_CELLS 24u /* in a row */

struct page_sum {
    uint64_t digest, digest_by_gfn, words;
};

struct page_sums {
    struct page_sum cell[PAGE_SUM_ROWS][PAGE_SUM_CELLS];
};

/* Add a page that is not zero: its digest, and the sum of its words as they count for that. */
void page_sums_add(struct page_sums *s, uint64_t gfn, uint64_t digest, uint64_t words);

/* A page that differs, and the word if it is only one: its offset, else one_word is false. */
struct page_difference {
    uint64_t gpa;
    bool one_word;
    unsigned offset;
    uint64_t expected, got; /* of that word */
};

/*
 * Name up to `most` pages of m, in ascending order, whose sums are `got`, that were otherwise where
 * they were `expected`. Returns how many. *all: there are no others.
 */
unsigned page_sums_compare(const struct page_sums *expected, const struct page_sums *got,
                           const struct guest_memory *m, struct page_difference *out, unsigned most,
                           bool *all);

/* PAGE_SUMS_BYTES; decode: zeroes where there are fewer, and the cursor is bad. */
#define PAGE_SUMS_BYTES (PAGE_SUM_ROWS * PAGE_SUM_CELLS * 24u)
void page_sums_encode(struct bytes *out, const struct page_sums *s);
void page_sums_decode(struct cursor *in, struct page_sums *s);

#endif
