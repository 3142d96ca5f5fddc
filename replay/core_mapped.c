#include "replay/core_mapped.h"

#include <stdbool.h>
#include <stdlib.h>

#include "mmu/walk.h"

/* As many tables as are read: those of some 32 GiB in small pages. */
#define TABLES_MAX 16384u
/* The entry of a root below which Linux has the stacks of espfix_64.c: the same page at thousands
 * of addresses. */
#define ESPFIX_ENTRY 510u

struct mapper {
    const struct guest_memory *memory;
    const struct core_range *known;
    unsigned known_count, budget;
    struct core_mapped *mapped;
};

static bool is_known(const struct mapper *s, uint64_t va, uint64_t bytes)
{
    for (unsigned i = 0; i < s->known_count; i++)
        if (va >= s->known[i].va && va - s->known[i].va < s->known[i].bytes &&
            bytes <= s->known[i].bytes - (va - s->known[i].va))
            return true;
    return false;
}

static void add_page(struct mapper *s, uint64_t va, uint64_t gpa, uint64_t bytes)
{
    struct core_mapped *list = s->mapped;
    struct core_range *last = list->count ? &list->at[list->count - 1] : NULL;

    if (!guest_memory_any(s->memory, gpa, bytes))
        return; /* a device's */
    /* One range may not be of memory below the hole and above it. */
    if (last && last->va + last->bytes == va && last->gpa + last->bytes == gpa &&
        guest_memory_any(s->memory, last->gpa, last->bytes + bytes)) {
        last->bytes += bytes;
        return;
    }
    if (list->count == CORE_MAPPED_MAX)
        return;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 256;
        struct core_range *at = realloc(list->at, capacity * sizeof *at);
        if (!at)
            return;
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->count++] = (struct core_range){va, gpa, bytes};
}

/* A table whose entries cover 1 << shift bytes each, of which the first has address `base`. */
static void add_table(struct mapper *s, uint64_t table, unsigned shift, uint64_t base)
{
    const uint64_t *entry = guest_memory_any(s->memory, table, PAGE_BYTES);
    const uint64_t bytes = 1ull << shift;

    if (!entry || !s->budget)
        return;
    --s->budget;
    for (unsigned i = shift == 39 ? 256 : 0; i < 512; i++) {
        const uint64_t va = base + i * bytes, to = entry[i] & PTE_ADDRESS;
        if (!(entry[i] & PTE_PRESENT) || is_known(s, va, bytes) ||
            (shift == 39 && i == ESPFIX_ENTRY))
            continue;
        if (shift == 12 || (shift < 39 && (entry[i] & PTE_LARGE)))
            add_page(s, va, to & ~(bytes - 1), bytes);
        else
            add_table(s, to, shift - 9, va);
    }
}

void core_mapped_find(struct core_mapped *mapped, const struct guest_memory *m, uint64_t root,
                      const struct core_range *known, unsigned known_count)
{
    struct mapper s = {m, known, known_count, TABLES_MAX, mapped};

    add_table(&s, root & PTE_ADDRESS, 39, 0xffffull << 48);
}

void core_mapped_free(struct core_mapped *mapped)
{
    free(mapped->at);
    *mapped = (struct core_mapped){0};
}
