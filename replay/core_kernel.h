#ifndef REPLAY_CORE_KERNEL_H
#define REPLAY_CORE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "mmu/memory.h"
#include "recording/symbol_list.h"
#include "replay/core_mapped.h"

/* What a core says of the guest's Linux kernel, out of guest memory, which may hold anything. */

/* Where Linux maps all memory, unless its page_offset_base says otherwise. */
#define CORE_DIRECT_MAP 0xffff888000000000ull
/* The kernel has one page for it (VMCOREINFO_BYTES). */
#define CORE_INFO_MAX 4096u

struct core_kernel {
    uint64_t direct_map;
    struct core_range image;   /* in whole pages; 0 bytes: not found */
    struct core_mapped mapped; /* what else it has mapped */
    bool has_pids;             /* all are known: */
    uint32_t pids[MAX_VCPUS];  /* of the tasks that the CPUs run */
    char info[CORE_INFO_MAX];  /* VMCOREINFO: lines of text */
    size_t info_len;
    const char *without; /* why there is no such text; NULL: there is */
};

/* roots: CR3 of vCPUs in long mode; the machine has `cpus`. To be freed, whatever was found. */
void core_kernel_find(struct core_kernel *k, const struct guest_memory *m,
                      const struct symbol_list *symbols, const uint64_t *roots, unsigned count,
                      unsigned cpus);
void core_kernel_free(struct core_kernel *k);

#endif
