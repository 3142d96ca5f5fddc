#ifndef MMU_WALK_H
#define MMU_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "mmu/memory.h"

/*
 * A walk of the guest's own 4-level page tables (AMD APM vol. 2, 5.3; Intel SDM vol. 3, 4.5),
 * without side effects: Accessed and Dirty bits are not touched. KVM_TRANSLATE is not used because
 * it refuses user addresses on some hosts.
 */
struct translation {
    uint64_t gpa;
    uint64_t page_size; /* 4 KiB, 2 MiB or 1 GiB */
    bool user, writable, executable;
    bool accessed; /* at every level */
    bool dirty;    /* the page itself */
};

#define PTE_PRESENT  0x001ull
#define PTE_WRITE    0x002ull
#define PTE_USER     0x004ull
#define PTE_ACCESSED 0x020ull
#define PTE_DIRTY    0x040ull
#define PTE_LARGE    0x080ull
#define PTE_NX       (1ull << 63)
#define PTE_ADDRESS  0x000ffffffffff000ull

/* Translate va under the page table root cr3. False when it is not canonical or not mapped. */
bool walk(const struct guest_memory *m, uint64_t cr3, uint64_t va, struct translation *out);

/* The lowest address at which code at this CPL has this GPA; at CPL0 the lowest of the upper half,
 * if it is there. Reads page tables up to there, but not more than those of some 2 GiB: false then,
 * too. */
bool walk_find(const struct guest_memory *m, uint64_t cr3, unsigned cpl, uint64_t gpa,
               uint64_t *va);

/* Whether user code can write to the page with this GPA, by whichever of its mappings. The same
 * bound. */
bool walk_user_can_write(const struct guest_memory *m, uint64_t cr3, uint64_t gpa);

/*
 * Which of these pages, ascending numbers in m->host, are page tables under these roots, or roots.
 * Reads the tables there are, whoever owns them, also while they change. False: a root has 1,024
 * tables or more that lead to others, and not all of them were looked at.
 */
bool walk_find_tables(const struct guest_memory *m, const uint64_t *cr3, unsigned roots,
                      const uint32_t *page, unsigned count, bool *is_table);

/* Whether that page is a page table, but the root, by which addresses of the upper half are
 * translated. Reads the tables there are, up to 1,024, whoever owns them, also while they change.
 */
bool walk_is_kernel_table(const struct guest_memory *m, uint64_t cr3, uint64_t gpa);

/* Whether some address is translated to one of [gpa, gpa + len). Reads the tables there are, up to
 * 4,096, whoever owns them, also while they change. */
bool walk_leads_to(const struct guest_memory *m, uint64_t cr3, uint64_t gpa, uint64_t len);

/* Set the Accessed bits as the CPU does when it uses va; nothing when it is not mapped. */
void walk_touch(const struct guest_memory *m, uint64_t cr3, uint64_t va);

/* Read len bytes at va, across pages; returns the bytes done before the first unmapped or
 * non-RAM one. */
size_t walk_read(const struct guest_memory *m, uint64_t cr3, uint64_t va, void *data, size_t len);
/* The same by tables that lie in another view of that memory. */
size_t walk_read_by(const struct guest_memory *tables, const struct guest_memory *m, uint64_t cr3,
                    uint64_t va, void *data, size_t len);

#endif
