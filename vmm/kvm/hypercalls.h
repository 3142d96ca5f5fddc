#ifndef VMM_KVM_HYPERCALLS_H
#define VMM_KVM_HYPERCALLS_H

#include "vmm/kvm/vcpu.h"

/*
 * Hypercalls: KVM answers VMCALL and VMMCALL by itself, whether CPUID offers any or not, and one of
 * them (KVM_HC_CLOCK_PAIRING) with the host's time. Nothing but KVM's count tells of them
 * (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD; from Linux 5.14 on). Linux makes none where
 * CPUID does not say KVM, as here.
 */
struct hypercalls {
    unsigned vcpus; /* whose count KVM tells */
    struct hypercall_count {
        int fd;
        uint64_t at; /* in that file */
    } count[MAX_VCPUS];
    uint64_t made;    /* at the last look */
    uint64_t look_ns; /* when it is time for the next one */
};

/* Look at this vCPU, too, which does not run now. */
void hypercalls_add(struct hypercalls *h, const struct vcpu *vcpu);
/* Whether there are new ones, if it is time to look (NEVER: in any case); `now` is the host's. */
bool hypercalls_look(struct hypercalls *h, uint64_t now);
/* Also of one that is all zeroes. */
void hypercalls_close(struct hypercalls *h);

#endif
