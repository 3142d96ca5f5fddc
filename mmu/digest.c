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

static uint64_t digest(const void *page, uint64_t gfn, bool may_be_table)
{
    uint64_t words[WORDS], all = 0;

    memcpy(words, page, sizeof words);
    for (unsigned i = 0; i < WORDS; i++)
        all |= words[i];
    if (!all)
        return 0;
    if (may_be_table && page_looks_like_table(words))
        page_table_mask(words, WORDS);
    return XXH3_64bits_withSeed(words, sizeof words, gfn);
}

uint64_t page_digest(const void *page, uint64_t gfn)
{
    return digest(page, gfn, true);
}

uint64_t page_digest_of_data(const void *page, uint64_t gfn)
{
    return digest(page, gfn, false);
}

uint64_t memory_digest(const struct guest_memory *m)
{
    uint64_t sum = 0, start = 0, end;

    for (; guest_memory_touched(m, &start, &end); start = end)
        for (uint64_t at = start; at < end; at += PAGE_BYTES)
            sum += page_digest(m->host + at, guest_memory_gpa(m, at) / PAGE_BYTES);
    return sum;
}
