#include "mmu/walk.h"

#include <string.h>

bool walk(const struct guest_memory *m, uint64_t cr3, uint64_t va, struct translation *out)
{
    uint64_t table = cr3 & PTE_ADDRESS;

    if ((int64_t)(va << 16) >> 16 != (int64_t)va)
        return false;
    *out =
        (struct translation){.user = true, .writable = true, .executable = true, .accessed = true};
    for (unsigned shift = 39;; shift -= 9) {
        const uint64_t *entry = guest_memory_at(m, table + ((va >> shift) & 511) * 8, 8);
        if (!entry || !(*entry & PTE_PRESENT))
            return false;
        out->user &= (*entry & PTE_USER) != 0;
        out->writable &= (*entry & PTE_WRITE) != 0;
        out->executable &= !(*entry & PTE_NX);
        out->accessed &= (*entry & PTE_ACCESSED) != 0;
        if (shift == 12 || (shift < 39 && (*entry & PTE_LARGE))) {
            out->page_size = 1ull << shift;
            uint64_t in_page = va & (out->page_size - 1);
            out->gpa = (*entry & PTE_ADDRESS & ~(out->page_size - 1)) | in_page;
            return true;
        }
        table = *entry & PTE_ADDRESS;
    }
}

/* As many tables as are read for one page: those of some 2 GiB. */
#define FIND_TABLES 1024

static bool find_below(const struct guest_memory *m, uint64_t table, unsigned shift, uint64_t base,
                       uint64_t gpa, unsigned *budget, uint64_t *va)
{
    const uint64_t *entry = guest_memory_at(m, table, PAGE_BYTES), size = 1ull << shift;

    if (!entry || !*budget)
        return false;
    --*budget;
    /* Of the root, the user's half. */
    for (unsigned i = 0; i < (shift == 39 ? 256u : 512u); i++) {
        const uint64_t at = base + i * size, to = entry[i] & PTE_ADDRESS & ~(size - 1);
        if ((entry[i] & (PTE_PRESENT | PTE_USER)) != (PTE_PRESENT | PTE_USER))
            continue;
        if (shift == 12 || (shift < 39 && (entry[i] & PTE_LARGE))) {
            if (gpa - to < size) {
                *va = at + (gpa - to);
                return true;
            }
        } else if (find_below(m, entry[i] & PTE_ADDRESS, shift - 9, at, gpa, budget, va)) {
            return true;
        }
    }
    return false;
}

bool walk_find_user(const struct guest_memory *m, uint64_t cr3, uint64_t gpa, uint64_t *va)
{
    unsigned budget = FIND_TABLES;

    return find_below(m, cr3 & PTE_ADDRESS, 39, 0, gpa, &budget, va);
}

void walk_touch(const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    uint64_t table = cr3 & PTE_ADDRESS;
    struct translation t;

    if (!walk(m, cr3, va, &t) || t.accessed)
        return;
    for (unsigned shift = 39;; shift -= 9) {
        uint64_t *entry = guest_memory_at(m, table + ((va >> shift) & 511) * 8, 8);
        *entry |= PTE_ACCESSED;
        guest_memory_mark(m, entry, sizeof *entry);
        if (shift == 12 || (shift < 39 && (*entry & PTE_LARGE)))
            return;
        table = *entry & PTE_ADDRESS;
    }
}

size_t walk_read(const struct guest_memory *m, uint64_t cr3, uint64_t va, void *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        struct translation t;
        uint64_t at = va + done;
        size_t n = PAGE_BYTES - (at & (PAGE_BYTES - 1));
        if (n > len - done)
            n = len - done;
        const void *from = walk(m, cr3, at, &t) ? guest_memory_at(m, t.gpa, n) : NULL;
        if (!from)
            break;
        memcpy((uint8_t *)data + done, from, n);
        done += n;
    }
    return done;
}
