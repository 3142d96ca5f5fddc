#ifndef REPLAY_CORE_MAPPED_H
#define REPLAY_CORE_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "mmu/memory.h"

/* What the guest's kernel has mapped beside its image and its direct map: stacks of its tasks,
 * modules. gdb knows of addresses only what a core's headers say; crash and drgn read the guest's
 * page tables. */

/* So many ranges at most, as an ELF file counts its headers in 16 bits. */
#define CORE_MAPPED_MAX 32768u

struct core_range {
    uint64_t va, gpa, bytes; /* whole pages of RAM */
};

struct core_mapped {
    struct core_range *at; /* in order of address */
    size_t count, capacity;
};

/* Append what a root maps in the kernel's half, at most CORE_MAPPED_MAX ranges, but for what lies
 * wholly within one of `known`. Reads tables that may hold anything, a bounded number. */
void core_mapped_find(struct core_mapped *mapped, const struct guest_memory *m, uint64_t root,
                      const struct core_range *known, unsigned known_count);
void core_mapped_free(struct core_mapped *mapped);

#endif
