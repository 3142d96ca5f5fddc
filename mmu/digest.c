#include "mmu/digest.h"

#include <stdbool.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "mmu/walk.h"

#define WORDS (PAGE_BYTES / 8)

/* Bits 51..39 and 58..52: zero in every entry of a guest with 39 physical address bits, apart from
 * what Linux keeps in the ignored bits. */
#define ENTRY_MUST_BE_ZERO 0x000fff8000000000ull

bool page_looks_like_table(const void *page)
{
    uint64_t words[WORDS];
    bool any = false;

    memcpy(words, page, sizeof words);

    for (unsigned i = 0; i < WORDS; i++) {
        if (!(words[i] & PTE_PRESENT))
            continue;
        if (words[i] & ENTRY_MUST_BE_ZERO)
            return false;
        any = true;
    }
    return any;
}

void page_table_mask(uint64_t *entries, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (entries[i] & PTE_PRESENT)
            entries[i] &= ~(PTE_ACCESSED | PTE_DIRTY);
}

void page_as_it_counts(const void *page, uint64_t words[WORDS])
{
    memcpy(words, page, PAGE_BYTES);
    if (page_looks_like_table(words))
        page_table_mask(words, WORDS);
}

/* Also says the sum of the words, for nothing: all of them are looked at. */
static uint64_t digest(const uint64_t words[WORDS], uint64_t gfn, uint64_t *sum)
{
    uint64_t all = 0;

    *sum = 0;
    for (unsigned i = 0; i < WORDS; i++) {
        all |= words[i];
        *sum += words[i];
    }
    return all ? XXH3_64bits_withSeed(words, PAGE_BYTES, gfn) : 0;
}

uint64_t page_digest(const void *page, uint64_t gfn)
{
    uint64_t words[WORDS], ignored;

    page_as_it_counts(page, words);
    return digest(words, gfn, &ignored);
}

uint64_t page_digest_of_data(const void *page, uint64_t gfn)
{
    uint64_t words[WORDS], ignored;

    memcpy(words, page, PAGE_BYTES);
    return digest(words, gfn, &ignored);
}

uint64_t memory_digest(const struct guest_memory *m, struct page_sums *sums)
{
    uint64_t sum = 0, start = 0, end, words[WORDS], sum_of_words;

    if (sums)
        memset(sums, 0, sizeof *sums);
    for (; guest_memory_touched(m, &start, &end); start = end)
        for (uint64_t at = start; at < end; at += PAGE_BYTES) {
            const uint64_t gfn = guest_memory_gpa(m, at) / PAGE_BYTES;
            page_as_it_counts(m->host + at, words);
            const uint64_t page = digest(words, gfn, &sum_of_words);
            sum += page;
            if (sums && page)
                page_sums_add(sums, gfn, page, sum_of_words);
        }
    return sum;
}
