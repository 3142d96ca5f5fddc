#ifndef VMM_VIEWS_H
#define VMM_VIEWS_H

#include "vmm/shared_tables.h"
#include "vmm/vm.h"

/* The VMs of a machine whose vCPUs run at the same time: one for each of them, on the memory of one
 * that has none of its own (vm_create_view()). */
struct views {
    struct ownership *ownership; /* NULL: everybody's memory is everybody's */
    struct shared_tables *tables;
    unsigned count;
    struct vm vm[MAX_VCPUS];
    bool changing; /* the guest has made page tables of its own, and may change them */
};

/* `whole` must outlive them. `owned`: pages have owners; else nothing orders what the vCPUs do to
 * memory, and none of the below ever applies. -1: the host lacks what that needs. */
int views_create(struct views *v, struct vm *whole, unsigned count, bool owned, struct err *e);
/* All zero is fine. The vCPUs go first. */
void views_destroy(struct views *v);

/* The machine is as it was made: the tables that its first vCPU begins with are everybody's. */
void views_begin(struct views *v);

/*
 * A vCPU wants a page. Whether another one has to give it up; and whether `other` has to stand when
 * it is given, as one that has to give it up, or because page tables are to be looked through, for
 * which all have to.
 */
bool views_contended(const struct views *v, unsigned vcpu, const struct page_fault *wanted);
bool views_conflict(const struct views *v, unsigned vcpu, unsigned other, uint64_t cr3,
                    const struct page_fault *wanted);

/* A vCPU stands at a sync point: take back the tables that were lent to it (vmm/ownership.h). */
void views_return(struct views *v, unsigned vcpu);

/* Give it that. Its root is cr3 (0: it has none). Returns whether the page has changed hands; else
 * it has the page, which is a page table, like all others. */
bool views_give(struct views *v, unsigned vcpu, uint64_t cr3, const struct page_fault *wanted);

/* The root page table a vCPU has loaded, or 0. */
uint64_t views_root(struct vcpu *vcpu);

#endif
