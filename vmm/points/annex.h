#ifndef VMM_POINTS_ANNEX_H
#define VMM_POINTS_ANNEX_H

#include "vmm/kvm/vcpu.h"

/*
 * The annex: memory of ours in the guest's address space, for the time being. The CPU uses a copy
 * of the guest's root page table with one more entry, for 512 GiB that the guest does not use
 * itself; the guest's own tables stay as they are, because kernel code looks at them, and copies
 * them for new processes. No annex is part of guest RAM or of any digest. One a VM; it is open for
 * one vCPU at a time.
 *
 *   offset
 *        0   an interrupt descriptor table: the guest's, with each gate leading to
 *     4096   256 HLT bytes, one a vector
 *     8192   the handler of #GP (vmm/points/trace/trace_handler.c), its words at 16384
 *   184320   the trace (vmm/points/trace/trace.h); user code may use it
 *
 * The trace is not next to the others for the emulated host's sake: QEMU's TLB has one entry for
 * all pages with equal low bits of their numbers, and small programs have their data at low ones.
 */
#define ANNEX_IDT   0u
#define ANNEX_HLTS  4096u
#define ANNEX_TRACE (45u * 4096u)
#define ANNEX_BYTES (2u << 20)
/* Far apart for the same reason for which words and code of the trace are. */
#define ANNEX_HANDLER       8192u
#define ANNEX_HANDLER_WORDS 16384u

struct annex {
    struct vm_part part; /* its first member */
    uint64_t gpa;        /* where it lies; 0: nowhere, the guest has been at each place */
    uint8_t *region;     /* page tables, then the pages */
    uint8_t *kvms;       /* the same, as KVM has them: while it is open */
    uint8_t *pages;
    const uint64_t *guest_root; /* while open */
    uint64_t base;              /* the same: where it is mapped */
    bool user;
    bool trapping;     /* the table is in use */
    int except;        /* the vector that is left to the guest or to `handler`, or -1 */
    uint64_t handler;  /* 0: the guest's */
    uint8_t idt[4096]; /* the guest's own, as it was copied */
    struct kvm_dtable idtr;
};

/* The VM's annex, made when first asked for; NULL when KVM has no room for it, or no place is left.
 */
struct annex *annex_of(struct vm *vm);

/* To be called before each annex_open(), with the page tables that are loaded: if they lead to it,
 * it moves. False when there is no annex. */
bool annex_ready(struct vm *vm, uint64_t cr3);

/* Where it could be mapped under page tables cr3; false when there is no room. */
bool annex_find_base(const struct vm *vm, uint64_t cr3, uint64_t *base);
/* Whether the guest still leaves that base free. */
bool annex_is_free(const struct vm *vm, uint64_t cr3, uint64_t base);

/* Map it at a base that is free under the page tables the vCPU has loaded. user: the pages from
 * ANNEX_TRACE on are for code at CPL3. Closing takes it away. */
void annex_open(struct annex *annex, struct vcpu *vcpu, uint64_t base, bool user);
void annex_close(struct annex *annex, struct vcpu *vcpu);

/*
 * While it is open: let every exception, interrupt and INT n lead to an exit, EXIT_HLT, with the
 * frame pushed, before the guest's handler begins; `except` is a vector that goes on to the guest's
 * handler, or to the one at `handler` if that is not 0, or -1. Not a byte of the guest's changes.
 * Ends with annex_close().
 */
void annex_trap_vectors(struct annex *annex, struct vcpu *vcpu, int except, uint64_t handler);
/* Whether the vCPU is on its way to such an exit, or in `handler`: a kick may come there. */
bool annex_is_entered(const struct annex *annex, const struct vcpu *vcpu);
/* Whether an exit is such a trap, and where the guest's handler begins. */
bool annex_trapped(struct annex *annex, struct vcpu *vcpu, const struct vcpu_exit *exit,
                   uint64_t *handler);

/* Follow what the guest did to its root page table and its IDT meanwhile. */
void annex_refresh(struct annex *annex, struct vcpu *vcpu);

#endif
