#ifndef VMM_KVM_VIEWS_H
#define VMM_KVM_VIEWS_H

#include "mmu/lost_pages.h"
#include "mmu/shared_tables.h"
#include "vmm/kvm/vm.h"

/* The VMs of a machine whose vCPUs run at the same time: one for each of them, on the memory of one
 * that has none of its own (vm_create_view()). */
struct views {
    struct ownership *ownership; /* NULL: everybody's memory is everybody's */
    struct shared_tables *tables;
    struct lost_pages *lost;
    unsigned count;
    struct vm vm[MAX_VCPUS];
    uint64_t pages; /* of the machine */
    struct views_window {
        uint64_t next; /* behind the pages that nobody had and it got last, */
        unsigned size; /* so many at once */
    } window[MAX_VCPUS];
    struct {
        int from; /* who could write it before; -1: nobody */
        uint64_t page;
    } given[MAX_VCPUS]; /* the last one of each vCPU */
    bool changing;      /* the guest has made page tables of its own, and may change them */
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

/* A vCPU stands at a sync point: take back the tables that were lent to it (mmu/ownership.h). */
void views_return(struct views *v, unsigned vcpu);

/*
 * Give it that. A page that nobody has it gets to be written; and where it takes such pages one
 * after another, some that follow, up to twice as many each time, as memory is cleared that way.
 * Its root is cr3 (0: it has none). Returns how many pages have changed hands, the wanted one
 * first; 0: it has the page, which is a page table, like all others.
 */
#define VIEWS_GIVEN_MAX LOST_PAGES_MAX
unsigned views_give(struct views *v, unsigned vcpu, uint64_t cr3, const struct page_fault *wanted,
                    struct page_fault given[VIEWS_GIVEN_MAX]);

/*
 * Where the page that a vCPU was just given was another one's that could write it, and had taken it
 * from this one, it can come back as it was, to be written, even if it is only to be read now; and
 * with it `all` that the other one has taken and still has. The other one still stands. Whether
 * there is anything to come back; and what then does, *given and how many: 0 to VIEWS_GIVEN_MAX.
 */
bool views_can_regain(const struct views *v, unsigned vcpu, bool all);
unsigned views_regain(struct views *v, unsigned vcpu, bool all,
                      struct page_fault given[VIEWS_GIVEN_MAX]);

/* The root page table a vCPU has loaded, or 0. */
uint64_t views_root(struct vcpu *vcpu);

#endif
