#ifndef MMU_OWNERSHIP_H
#define MMU_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "mmu/memory.h"

/*
 * Who may use which page of a machine whose vCPUs run at the same time: concurrent readers or one
 * exclusive writer (CREW; Dunlap et al., SMP-ReVirt). Each vCPU has a mapping of guest memory of
 * its own, and a VM of its own on that; userfaultfd holds a vCPU that touches what it does not own.
 * What it does next is for others to decide: here are the permissions, and how a vCPU that lacks
 * one comes out of KVM_RUN.
 *
 * It comes out like this. The kernel says which page is needed, and nothing but having it lets
 * KVM_RUN go on; so a thread of ours signals the vCPU's thread and then *lends* it the page. KVM
 * finishes the fault, sees the signal before it enters the guest, and returns with the registers in
 * front of the instruction, which has not touched the page. Before the vCPU runs again the loan is
 * called in, unless it owns the page by then.
 *
 * The permissions of a vCPU change only while it is not in KVM_RUN. Guest memory that is not read
 * through these mappings (struct guest_memory) is nobody's business here.
 */
struct ownership;

/* In ascending order. The values are part of the recording format. */
enum page_access { ACCESS_NONE, ACCESS_READ, ACCESS_WRITE };

struct page_fault {
    uint64_t page; /* number in guest_memory.host */
    enum page_access access;
};

/* For vCPUs 0 to vcpus - 1, none of which owns anything. `memory` must outlive it. NULL, with the
 * reason, where the host lacks what it needs. It brings vCPUs' threads out of KVM_RUN by
 * OWNERSHIP_SIGNAL, which they must not block and nobody else may use; its handler does nothing. */
#define OWNERSHIP_SIGNAL SIGUSR2
struct ownership *ownership_create(const struct guest_memory *memory, unsigned vcpus,
                                   struct err *e);
/* No vCPU is in KVM_RUN. NULL is fine. */
void ownership_destroy(struct ownership *o);

/* guest_memory.size bytes: guest memory, as this vCPU uses it. */
uint8_t *ownership_mapping(const struct ownership *o, unsigned vcpu);
/* Its permissions, enum page_access, one byte a page. */
const uint8_t *ownership_table(const struct ownership *o, unsigned vcpu);

/* To be called around KVM_RUN, in the thread that runs the vCPU. What leave() returns: */
enum ownership_stop {
    OWNERSHIP_NOTHING, /* no fault */
    OWNERSHIP_FAULT,   /* *fault is why KVM_RUN was interrupted */
    OWNERSHIP_LOST,    /* there was one outside of KVM_RUN, and it went through */
};
void ownership_enter(struct ownership *o, unsigned vcpu);
enum ownership_stop ownership_leave(struct ownership *o, unsigned vcpu, struct page_fault *fault);

/* Behind that: whether this page is all that it was lent. */
bool ownership_lacked_only(const struct ownership *o, unsigned vcpu, uint64_t page);

/* Whether all of them may write it: it was given to ownership_share(). */
bool ownership_is_shared(const struct ownership *o, uint64_t page);

/* Whether `other` must give something up before a vCPU can have this. */
bool ownership_conflict(const struct ownership *o, unsigned other, const struct page_fault *wanted);
/* Let it have that, and take it from the others; neither it nor who has
 * to give something up is in KVM_RUN. */
void ownership_transfer(struct ownership *o, unsigned vcpu, const struct page_fault *wanted);
/* Let all of them use the page as they like: for page tables, which the CPU itself walks when its
 * TLB happens to need it. None is in KVM_RUN. */
void ownership_share(struct ownership *o, uint64_t page);
/* One's permission alone, whatever others have; returns the one before. It is not in KVM_RUN. */
enum page_access ownership_set(struct ownership *o, unsigned vcpu, uint64_t page,
                               enum page_access access);
/* Nobody has it any more. None is in KVM_RUN. */
void ownership_disown(struct ownership *o, uint64_t page);

/*
 * Lend a vCPU the page of a table that it walks, between two KVM_RUNs of it and whoever else has
 * the page: its TLB may have needed the table earlier, or later, or not at all, so that shows
 * nowhere here. It is taken back when others are lent (beyond some 16), or by
 * ownership_return_tables(), unless it is `but`, the root that is still in use.
 */
void ownership_lend_table(struct ownership *o, unsigned vcpu, uint64_t page);
bool ownership_has_tables(const struct ownership *o, unsigned vcpu);
void ownership_return_tables(struct ownership *o, unsigned vcpu, uint64_t but);

#endif
