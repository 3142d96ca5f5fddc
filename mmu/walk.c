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
        const uint64_t at = table + ((va >> shift) & 511) * 8;
        /* The root that a vCPU has loaded may be lent to it (vmm/ownership.h). */
        const uint64_t *entry =
            shift == 39 ? guest_memory_any(m, at, 8) : guest_memory_at(m, at, 8);
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

/* Whoever looks for something in user space: is shown each page of it, of `size` bytes at gpa, and
 * returns whether that is enough. */
struct seeker {
    bool (*shown)(struct seeker *s, uint64_t va, uint64_t gpa, uint64_t size);
    unsigned budget; /* tables */
};

static bool seek_below(const struct guest_memory *m, struct seeker *s, uint64_t table,
                       unsigned shift, uint64_t base)
{
    const uint64_t *entry = guest_memory_at(m, table, PAGE_BYTES), size = 1ull << shift;

    if (!entry || !s->budget)
        return false;
    --s->budget;
    /* Of the root, the user's half. */
    for (unsigned i = 0; i < (shift == 39 ? 256u : 512u); i++) {
        const uint64_t va = base + i * size, to = entry[i] & PTE_ADDRESS;
        if ((entry[i] & (PTE_PRESENT | PTE_USER)) != (PTE_PRESENT | PTE_USER))
            continue;
        if (shift == 12 || (shift < 39 && (entry[i] & PTE_LARGE))
                ? s->shown(s, va, to & ~(size - 1), size)
                : seek_below(m, s, to, shift - 9, va))
            return true;
    }
    return false;
}

struct seeker_of_gpa {
    struct seeker seeker;
    uint64_t gpa, va;
};

static bool is_at(struct seeker *seeker, uint64_t va, uint64_t gpa, uint64_t size)
{
    struct seeker_of_gpa *s = (struct seeker_of_gpa *)seeker;

    if (s->gpa - gpa >= size)
        return false;
    s->va = va + (s->gpa - gpa);
    return true;
}

bool walk_find_user(const struct guest_memory *m, uint64_t cr3, uint64_t gpa, uint64_t *va)
{
    struct seeker_of_gpa s = {.seeker = {is_at, FIND_TABLES}, .gpa = gpa};
    const bool found = seek_below(m, &s.seeker, cr3 & PTE_ADDRESS, 39, 0);

    *va = s.va;
    return found;
}

struct seeker_of_data {
    struct seeker seeker;
    const struct guest_memory *memory;
    const uint32_t *page;
    unsigned count, left;
    bool *is_data;
};

static bool is_of_these(struct seeker *seeker, uint64_t va, uint64_t gpa, uint64_t size)
{
    struct seeker_of_data *s = (struct seeker_of_data *)seeker;
    unsigned first = 0, last = s->count; /* the first page that does not lie before it */

    (void)va;
    while (first < last) {
        const unsigned middle = (first + last) / 2;
        if (guest_memory_gpa(s->memory, (uint64_t)s->page[middle] * PAGE_BYTES) < gpa)
            first = middle + 1;
        else
            last = middle;
    }
    for (; first < s->count; first++) {
        if (guest_memory_gpa(s->memory, (uint64_t)s->page[first] * PAGE_BYTES) - gpa >= size)
            break;
        s->left -= !s->is_data[first];
        s->is_data[first] = true;
    }
    return !s->left;
}

void walk_find_data(const struct guest_memory *m, uint64_t cr3, const uint32_t *page,
                    unsigned count, bool *is_data)
{
    struct seeker_of_data s = {{is_of_these, FIND_TABLES}, m, page, count, count, is_data};

    memset(is_data, 0, count * sizeof *is_data);
    if (count)
        seek_below(m, &s.seeker, cr3 & PTE_ADDRESS, 39, 0);
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
