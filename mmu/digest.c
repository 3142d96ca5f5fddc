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
    const uint64_t *words = page;
    bool any = false;

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

/* The page, or a copy of it without what does not count. */
static const uint64_t *as_it_counts(const uint64_t *page, uint64_t copy[WORDS])
{
    if (!page_looks_like_table(page))
        return page;
    memcpy(copy, page, PAGE_BYTES);
    page_table_mask(copy, WORDS);
    return copy;
}

void page_as_it_counts(const void *page, uint64_t words[WORDS])
{
    memmove(words, as_it_counts(page, words), PAGE_BYTES);
}

bool page_is_zero(const void *page)
{
    const uint8_t *p = page;

    return p[0] == 0 && memcmp(p, p + 1, PAGE_BYTES - 1) == 0;
}

static uint64_t digest(const struct guest_memory *m, const uint64_t words[WORDS], uint64_t gfn)
{
    if (page_is_zero(words))
        return 0;
    return m->digest_by_xxh3 ? XXH3_64bits_withSeed(words, PAGE_BYTES, gfn)
                             : XXH64(words, PAGE_BYTES, gfn);
}

uint64_t page_digest(const struct guest_memory *m, const void *page, uint64_t gfn)
{
    uint64_t copy[WORDS];

    return digest(m, as_it_counts(page, copy), gfn);
}

uint64_t page_digest_of_data(const struct guest_memory *m, const void *page, uint64_t gfn)
{
    return digest(m, page, gfn);
}

static uint64_t sum_of(const uint64_t words[WORDS])
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < WORDS; i++)
        sum += words[i];
    return sum;
}

uint64_t memory_digest(const struct guest_memory *m, struct page_sums *sums)
{
    uint64_t sum = 0, start = 0, end, copy[WORDS];

    if (sums)
        memset(sums, 0, sizeof *sums);
    for (; guest_memory_touched(m, &start, &end); start = end)
        for (uint64_t at = start; at < end; at += PAGE_BYTES) {
            const uint64_t gfn = guest_memory_gpa(m, at) / PAGE_BYTES;
            const uint64_t *words = as_it_counts((const uint64_t *)(m->host + at), copy);
            const uint64_t page = digest(m, words, gfn);
            sum += page;
            if (sums && page)
                page_sums_add(sums, gfn, page, sum_of(words));
        }
    return sum;
}
