#ifndef VMM_VIEWS_H
#define VMM_VIEWS_H

#include "vmm/ownership.h"
#include "vmm/vm.h"

#define VIEWS_ROOTS 8u

/* The VMs of a machine whose vCPUs run at the same time: one for each of them, on the memory of one
 * that has none of its own (vm_create_view()). */
struct views {
    struct ownership *ownership;
    unsigned count;
    struct vm vm[MAX_VCPUS];
    uint64_t root[VIEWS_ROOTS]; /* of views_share_tables() */
    unsigned roots;
};

/* `whole` must outlive them. -1: the host lacks what that needs. */
int views_create(struct views *v, struct vm *whole, unsigned count, struct err *e);
/* All zero is fine. The vCPUs go first. */
void views_destroy(struct views *v);

/*
 * The page tables that lie under this root, one that is not known yet and of at most VIEWS_ROOTS,
 * belong to all: the CPU walks them when its TLB happens to need it, which is not the same in each
 * run, so nobody may ever have to wait for one of them. They must not change any more in a way that
 * matters. No vCPU is in KVM_RUN.
 */
void views_share_tables(struct views *v, uint64_t cr3);
/* Whether a vCPU uses page tables that are not shared, and their root. */
bool views_new_tables(const struct views *v, struct vcpu *vcpu, uint64_t *cr3);

#endif
