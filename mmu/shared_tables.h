#ifndef MMU_SHARED_TABLES_H
#define MMU_SHARED_TABLES_H

#include "mmu/ownership.h"

/*
 * The page tables that belong to all vCPUs of a machine whose vCPUs run at the same time. The CPU
 * walks tables when its TLB happens to need it, and AMD's walks count as writes (KVM-FACTS 3), so
 * a table that two vCPUs use would go to and fro between them for ever. What the kernel's half of a
 * known root leads to, then, is everybody's to write; all else is data, and has an owner.
 *
 * So have the tables of user space. Threads of one process race for them: one makes an entry while
 * another one comes to it, and whether that raises a page fault in the guest must be the same in a
 * replay. A fault for such a table comes in every run at the same instruction: whoever loses a page
 * loses all of its TLB with it, so that the first use of an address under the table walks it.
 * (Kernels make entries of their own half before anybody else hears of the addresses.)
 *
 * A guest makes, moves and frees tables as it likes, and what was a table is data the moment after.
 * So the set is looked through wherever a page changes hands, when all vCPUs stand: nobody can know
 * of a page's new use who has not got a page from the vCPU that knows it. A table belongs to the
 * set as long as another one in it leads there; a root, as long as a vCPU uses it or it looks like
 * one.
 *
 * What all of this does is a function of guest memory and registers at that moment, so a replay
 * that comes to the same moments has the same set.
 */
struct shared_tables;

/* Empty; both must outlive it. NULL: there is no memory. */
struct shared_tables *shared_tables_create(const struct guest_memory *memory,
                                           struct ownership *ownership);
/* NULL is fine. */
void shared_tables_destroy(struct shared_tables *t);

/* Whether that is a known root. Bits of cr3 that are no address do not matter. */
bool shared_tables_has(const struct shared_tables *t, uint64_t cr3);
/* Let all vCPUs have this root and the tables under it: those of the kernel's half, or all of them.
 * None is in KVM_RUN, here and below. */
void shared_tables_add(struct shared_tables *t, uint64_t cr3, bool users_half);

/* Follow what the guest has done to tables. in_use: the roots that vCPUs have loaded; the first is
 * what others are held against. */
void shared_tables_refresh(struct shared_tables *t, const uint64_t *in_use, unsigned count);

#endif
