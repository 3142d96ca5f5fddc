#ifndef MMU_MEMORY_H
#define MMU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bitmap.h"
#include "base/err.h"

/*
 * Guest RAM: one memfd, mapped once, laid out in guest-physical space as
 *     [0, low_size)                 low_size <= 3 GiB
 *     [4 GiB, 4 GiB + high_size)    when there is more
 * so that [3 GiB, 4 GiB) stays free for PCI and the firmware's fixed addresses.
 * File offset = GPA for low memory, GPA - 4 GiB + low_size for high memory.
 */
#define MEMORY_HOLE_BASE 0xc0000000ull
#define MEMORY_HIGH_BASE 0x100000000ull
#define PAGE_BYTES       4096u

struct guest_memory {
    int fd;
    uint8_t *host; /* size bytes */
    uint64_t size; /* bytes of RAM, a multiple of 2 MiB */
    uint64_t low_size, high_size;
    /* One bit a page: those that we wrote, and not the guest; see guest_memory_mark(). NULL: nobody
     * wants to know. Belongs to who set it. */
    uint64_t *marked;
    /* One byte a page, not 0 where it may be looked at: what one vCPU of several that run at the
     * same time may read (mmu/ownership.h). NULL: all of it. Belongs to who set it. */
    const uint8_t *readable;
    /* Its pages are digested as recordings before RECORDING_XXH64 have it (mmu/digest.h). */
    bool digest_by_xxh3;
};

/* How much there can be: well within the 39 physical address bits of ditto-v1, the end of which is
 * ours (vmm/points/trace/trace.c). */
#define MEMORY_MIN  (16ull << 20)
#define MEMORY_MAX  (256ull << 30)
#define MEMORY_STEP (2ull << 20)

/* 0 when `size` bytes are possible, else -1 with STATUS_USAGE. */
int guest_memory_check(uint64_t size, struct err *e);

/* The same, where this host cannot have as much; STATUS_ERROR then. A guest rarely touches all of
 * its memory, so it may be more than is free. */
int guest_memory_check_host(uint64_t size, struct err *e);

/* Make `size` bytes of zeroed RAM (see above); the memory is not committed until it is touched. */
int guest_memory_create(struct guest_memory *m, uint64_t size, struct err *e);
void guest_memory_destroy(struct guest_memory *m);

/* The host address of [gpa, gpa + len), or NULL unless every byte of it is RAM, contiguous, and
 * readable. */
void *guest_memory_at(const struct guest_memory *m, uint64_t gpa, uint64_t len);

/* The same, readable or not: for what one vCPU of several does use, though it has no right to it.
 */
void *guest_memory_any(const struct guest_memory *m, uint64_t gpa, uint64_t len);

/* Whether the page of this GPA is in a bitmap with a bit for each page of m->host. True of what is
 * no RAM. */
static inline bool guest_memory_in(const struct guest_memory *m, const uint64_t *bitmap,
                                   uint64_t gpa)
{
    const uint8_t *at = guest_memory_any(m, gpa, 1);

    return !at || bitmap_has(bitmap, (uint64_t)(at - m->host) / PAGE_BYTES);
}

/*
 * The next run of pages at or after *start (a byte offset into m->host) that were ever touched: the
 * others are zero, and reading them would allocate them. False when there is none.
 */
bool guest_memory_touched(const struct guest_memory *m, uint64_t *start, uint64_t *end);

/* To be called with every write to guest memory that the guest does not make itself: `at` as from
 * guest_memory_at(). What is taken back before the guest runs on need not be marked. */
static inline void guest_memory_mark(const struct guest_memory *m, const void *at, uint64_t len)
{
    const uint64_t offset = (uint64_t)((const uint8_t *)at - m->host);

    for (uint64_t page = offset / PAGE_BYTES; m->marked && page * PAGE_BYTES < offset + len; page++)
        bitmap_set(m->marked, page);
}

/* The GPA of a byte offset into m->host. */
static inline uint64_t guest_memory_gpa(const struct guest_memory *m, uint64_t offset)
{
    return offset < m->low_size ? offset : offset - m->low_size + MEMORY_HIGH_BASE;
}

#endif
