#include "mmu/walk.h"

#include <string.h>

/* The entry for va of a table whose entries cover 1 << shift bytes each. NULL: it cannot be read;
 * but the root that a vCPU has loaded may be lent to it (mmu/ownership.h), so that one always can.
 */
static uint64_t *entry_of(const struct guest_memory *m, uint64_t table, uint64_t va, unsigned shift)
{
    const uint64_t at = table + ((va >> shift) & 511) * 8;

    return shift == 39 ? guest_memory_any(m, at, 8) : guest_memory_at(m, at, 8);
}

bool walk(const struct guest_memory *m, uint64_t cr3, uint64_t va, struct translation *out)
{
    uint64_t table = cr3 & PTE_ADDRESS;

    if ((int64_t)(va << 16) >> 16 != (int64_t)va)
        return false;
    *out =
        (struct translation){.user = true, .writable = true, .executable = true, .accessed = true};
    for (unsigned shift = 39;; shift -= 9) {
        const uint64_t *at = entry_of(m, table, va, shift);
        const uint64_t entry =
            at ? __atomic_load_n(at, __ATOMIC_RELAXED) : 0; /* others may write */
        if (!(entry & PTE_PRESENT))
            return false;
        out->user &= (entry & PTE_USER) != 0;
        out->writable &= (entry & PTE_WRITE) != 0;
        out->executable &= !(entry & PTE_NX);
        out->accessed &= (entry & PTE_ACCESSED) != 0;
        if (shift == 12 || (shift < 39 && (entry & PTE_LARGE))) {
            out->page_size = 1ull << shift;
            out->dirty = (entry & PTE_DIRTY) != 0;
            uint64_t in_page = va & (out->page_size - 1);
            out->gpa = (entry & PTE_ADDRESS & ~(out->page_size - 1)) | in_page;
            return true;
        }
        table = entry & PTE_ADDRESS;
    }
}

/* As many tables as are read for what they map: those of some 8 GiB in small pages. */
#define LEADS_TO_TABLES 4096

/* As many tables as are read for one page: those of some 2 GiB. */
#define FIND_TABLES 1024

/* What is looked for, with these bits in each entry on the way, and in how many more tables. */
struct seeker {
    uint64_t gpa, va, bits;
    unsigned budget;
};

/* Below entries `first` to `last` - 1 of a table that translates addresses from `base` on. */
static bool seek_below(const struct guest_memory *m, struct seeker *s, uint64_t table,
                       unsigned shift, uint64_t base, unsigned first, unsigned last)
{
    const uint64_t *entry = guest_memory_at(m, table, PAGE_BYTES), size = 1ull << shift;

    if (!entry || !s->budget)
        return false;
    --s->budget;
    for (unsigned i = first; i < last; i++) {
        const uint64_t va = base + i * size, to = entry[i] & PTE_ADDRESS;
        if ((entry[i] & s->bits) != s->bits)
            continue;
        if (shift > 12 && (shift == 39 || !(entry[i] & PTE_LARGE))) {
            if (seek_below(m, s, to, shift - 9, va, 0, 512))
                return true;
        } else if (s->gpa - (to & ~(size - 1)) < size) {
            s->va = va + (s->gpa - (to & ~(size - 1)));
            return true;
        }
    }
    return false;
}

static bool seek_lower_half(const struct guest_memory *m, struct seeker *s, uint64_t cr3)
{
    return seek_below(m, s, cr3 & PTE_ADDRESS, 39, 0, 0, 256);
}

bool walk_find(const struct guest_memory *m, uint64_t cr3, unsigned cpl, uint64_t gpa, uint64_t *va)
{
    struct seeker s = {.gpa = gpa, .bits = PTE_PRESENT, .budget = FIND_TABLES};
    bool found;

    if (cpl == 3) {
        s.bits |= PTE_USER;
        found = seek_lower_half(m, &s, cr3);
    } else {
        found = seek_below(m, &s, cr3 & PTE_ADDRESS, 39, 0xffffull << 48, 256, 512) ||
                seek_lower_half(m, &s, cr3);
    }
    *va = s.va;
    return found;
}

bool walk_user_can_write(const struct guest_memory *m, uint64_t cr3, uint64_t gpa)
{
    struct seeker s = {
        .gpa = gpa, .bits = PTE_PRESENT | PTE_USER | PTE_WRITE, .budget = FIND_TABLES};

    return seek_lower_half(m, &s, cr3) || !s.budget;
}

/* Pages that may be tables, and which are. */
struct table_seeker {
    const struct guest_memory *memory;
    const uint32_t *page;
    unsigned count, budget;
    bool *is_table;
};

static void note_table(struct table_seeker *s, const void *table)
{
    const uint64_t page = (uint64_t)((const uint8_t *)table - s->memory->host) / PAGE_BYTES;
    unsigned first = 0, last = s->count; /* the first that does not lie before it */

    while (first < last) {
        const unsigned middle = (first + last) / 2;
        if (s->page[middle] < page)
            first = middle + 1;
        else
            last = middle;
    }
    if (first < s->count && s->page[first] == page)
        s->is_table[first] = true;
}

/* A table whose entries cover 1 << shift bytes each, and those that its entries lead to. The last
 * ones are not read, so only the others count; and neighbours that lead to the same table, of which
 * Linux has thousands (espfix_64.c), lead there once. */
static void seek_tables(struct table_seeker *s, uint64_t table, unsigned shift)
{
    const uint64_t *entry = guest_memory_any(s->memory, table, PAGE_BYTES);
    uint64_t before = 0;

    if (!entry)
        return;
    note_table(s, entry);
    if (shift == 12 || !s->budget)
        return;
    --s->budget;
    for (unsigned i = 0; i < 512; i++) {
        const uint64_t now = __atomic_load_n(&entry[i], __ATOMIC_RELAXED);
        if (!(now & PTE_PRESENT) || (shift < 39 && (now & PTE_LARGE)))
            continue;
        if (before != (now & (PTE_ADDRESS | PTE_PRESENT)))
            seek_tables(s, now & PTE_ADDRESS, shift - 9);
        before = now & (PTE_ADDRESS | PTE_PRESENT);
    }
}

bool walk_find_tables(const struct guest_memory *m, const uint64_t *cr3, unsigned roots,
                      const uint32_t *page, unsigned count, bool *is_table)
{
    struct table_seeker s = {m, page, count, 0, is_table};

    memset(is_table, 0, count * sizeof *is_table);
    for (unsigned i = 0; i < roots && count; i++) {
        s.budget = FIND_TABLES;
        seek_tables(&s, cr3[i] & PTE_ADDRESS, 39);
        if (!s.budget)
            return false;
    }
    return true;
}

/* Whether entries from `first` on of a table whose entries cover 1 << shift bytes lead there. */
static bool leads_to(const struct guest_memory *m, uint64_t table, unsigned shift, unsigned first,
                     uint64_t gpa, unsigned *budget)
{
    const uint64_t *entry = guest_memory_any(m, table, PAGE_BYTES);

    if (!entry || !*budget)
        return false;
    --*budget;
    for (unsigned i = first; i < 512; i++) {
        const uint64_t now = __atomic_load_n(&entry[i], __ATOMIC_RELAXED), to = now & PTE_ADDRESS;
        if (!(now & PTE_PRESENT) || (shift < 39 && (now & PTE_LARGE)))
            continue;
        if (to == gpa || (shift > 21 && leads_to(m, to, shift - 9, 0, gpa, budget)))
            return true;
    }
    return false;
}

bool walk_is_kernel_table(const struct guest_memory *m, uint64_t cr3, uint64_t gpa)
{
    unsigned budget = FIND_TABLES;

    return leads_to(m, cr3 & PTE_ADDRESS, 39, 256, gpa, &budget);
}

/* Entries of a table that cover 1 << shift bytes each. */
static bool reaches(const struct guest_memory *m, uint64_t table, unsigned shift, uint64_t gpa,
                    uint64_t len, unsigned *budget)
{
    const uint64_t *entry = guest_memory_any(m, table, PAGE_BYTES), size = 1ull << shift;
    uint64_t before = 0;

    if (!entry || !*budget)
        return false;
    --*budget;
    for (unsigned i = 0; i < 512; i++) {
        const uint64_t now = __atomic_load_n(&entry[i], __ATOMIC_RELAXED), to = now & PTE_ADDRESS;
        const bool is_table = shift == 39 || (shift > 12 && !(now & PTE_LARGE));
        if (!(now & PTE_PRESENT))
            continue;
        if (!is_table && (to & ~(size - 1)) < gpa + len && gpa < (to & ~(size - 1)) + size)
            return true;
        /* Neighbours that lead to the same table lead there once (see seek_tables()). */
        if (is_table && before != (to | PTE_PRESENT) && reaches(m, to, shift - 9, gpa, len, budget))
            return true;
        before = is_table ? to | PTE_PRESENT : 0;
    }
    return false;
}

bool walk_leads_to(const struct guest_memory *m, uint64_t cr3, uint64_t gpa, uint64_t len)
{
    unsigned budget = LEADS_TO_TABLES;

    return reaches(m, cr3 & PTE_ADDRESS, 39, gpa, len, &budget);
}

void walk_touch(const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    uint64_t table = cr3 & PTE_ADDRESS;
    struct translation t;

    if (!walk(m, cr3, va, &t) || t.accessed)
        return;
    for (unsigned shift = 39;; shift -= 9) {
        uint64_t *entry = entry_of(m, table, va, shift);
        __atomic_fetch_or(entry, PTE_ACCESSED, __ATOMIC_RELAXED); /* others may use the root */
        guest_memory_mark(m, entry, sizeof *entry);
        if (shift == 12 || (shift < 39 && (*entry & PTE_LARGE)))
            return;
        table = *entry & PTE_ADDRESS;
    }
}

size_t walk_read_by(const struct guest_memory *tables, const struct guest_memory *m, uint64_t cr3,
                    uint64_t va, void *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        struct translation t;
        uint64_t at = va + done;
        size_t n = PAGE_BYTES - (at & (PAGE_BYTES - 1));
        if (n > len - done)
            n = len - done;
        const void *from = walk(tables, cr3, at, &t) ? guest_memory_at(m, t.gpa, n) : NULL;
        if (!from)
            break;
        memcpy((uint8_t *)data + done, from, n);
        done += n;
    }
    return done;
}

size_t walk_read(const struct guest_memory *m, uint64_t cr3, uint64_t va, void *data, size_t len)
{
    return walk_read_by(m, m, cr3, va, data, len);
}
