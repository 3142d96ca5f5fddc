#ifndef VMM_SHARED_TABLES_H
#define VMM_SHARED_TABLES_H

#include "vmm/ownership.h"

/*
 * The page tables that belong to all vCPUs of a machine whose vCPUs run at the same time. The CPU
 * walks tables when its TLB happens to need it, and AMD's walks count as writes (KVM-FACTS 3), so
 * a table that two vCPUs use would go to and fro between them for ever. What lies under a known
 * root, then, is everybody's to write; all else is data, and has an owner.
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
/* Let all vCPUs have the tables under this root. None is in KVM_RUN, here and below. */
void shared_tables_add(struct shared_tables *t, uint64_t cr3);

/* Follow what the guest has done to tables. in_use: the roots that vCPUs have loaded; the first is
 * what others are held against. */
void shared_tables_refresh(struct shared_tables *t, const uint64_t *in_use, unsigned count);

#endif
