#ifndef VMM_KVM_VM_H
#define VMM_KVM_VM_H

#include "base/err.h"
#include "base/limits.h"
#include "mmu/memory.h"

/* Pages that may be protected. */
#define VM_PROTECTED_MAX 4096u

struct vcpu;
struct ownership;
struct vm;

/* What others have attached to a VM: it ends with it. */
struct vm_part {
    struct vm_part *next;
    void (*free)(struct vm_part *part);
    /* KVM_RUN failed because memory is not there (EFAULT): whether it can be tried again, the part
     * having made way for the guest. NULL: no. */
    bool (*make_way)(struct vm *vm);
};

/*
 * One KVM virtual machine on stock KVM, configured so that nothing reaches the guest behind our
 * back: no in-kernel irqchip, PIT, irqfd, ioeventfd or kvmclock (ARCHITECTURE.md, "The boundary"),
 * and every MSR that is not plain CPU state exits to us.
 */
enum vm_answer { VM_UNKNOWN, VM_NO, VM_YES };

struct vm {
    int kvm_fd, fd;
    long run_size; /* bytes of the mmap'ed struct kvm_run */
    struct guest_memory memory;
    /* Of a view (vm_create_view()): the VM whose memory it is, and who says which pages its vCPU
     * may use; else NULL. */
    struct vm *whole;
    struct ownership *ownership;
    uint8_t *mapping;             /* memory as the guest uses it; not where memory.host is */
    struct vcpu *vcpu[MAX_VCPUS]; /* by index, also of views; NULL: there is none */
    uint64_t mapped;              /* bytes of it that are to be unmapped */
    bool protects;                /* see vm_protect() */
    bool logs_writes;
    bool reads_writes;                 /* vm_read_writes() works */
    enum vm_answer debug_registers[2]; /* debug_registers_work() at CPL0 and CPL3 */
    struct vm_part *parts;             /* attached to it: */
    struct annex *annex;               /* vmm/points/annex.h; NULL until it is needed */
    struct trace *trace;               /* vmm/points/trace/trace.h; the same */
    struct written *written;           /* vmm/points/written.h; NULL: nobody wants to know */
};

/* Where its vCPU's page tables are read: one may be lent to it, which the CPU has walked and its
 * view does not show. */
static inline const struct guest_memory *vm_tables(const struct vm *vm)
{
    return vm->whole ? &vm->whole->memory : &vm->memory;
}

/* Open /dev/kvm and check its API version. Returns the file descriptor, or -1. */
int kvm_open(struct err *e);

/* Make a VM with `memory_size` bytes of RAM (see mmu/memory.h for its range). */
int vm_create(struct vm *vm, uint64_t memory_size, struct err *e);
/* The same around memory that there is already: it is taken over, also on failure, and *memory is
 * empty afterwards. */
int vm_create_around(struct vm *vm, struct guest_memory *memory, struct err *e);

/*
 * A VM for vCPU number `vcpu` alone, one of several that run at the same time on the memory of
 * `whole`, each of which may use what `ownership` lets it. Both must outlive it. Its `memory` shows
 * what the vCPU may read and nothing else: what decides about the vCPU, in a recording and again in
 * its replay, must not depend on what others are writing meanwhile. `ownership` may be NULL: it may
 * use everything, and nothing of the kind holds.
 */
int vm_create_view(struct vm *vm, struct vm *whole, struct ownership *ownership, unsigned vcpu,
                   struct err *e);

/* Have KVM log which pages the guest writes, or stop that. Once on, vm_collect_writes() adds those
 * since the last call to a bitmap of vm_bitmap_words() words, one bit a page of memory.host. */
int vm_log_writes(struct vm *vm, bool on, struct err *e);
int vm_collect_writes(struct vm *vm, uint64_t *bitmap, struct err *e);
/* The same, but the next call adds them again; where vm->reads_writes says that KVM can. */
int vm_read_writes(struct vm *vm, uint64_t *bitmap, struct err *e);
/*
 * Have the guest's writes to these pages (GPAs of RAM) exit as EXIT_PROTECTED before they are done:
 * also those of the CPU itself, of a frame or to a page table. Where KVM does the instruction, they
 * exit as EXIT_MMIO_WRITE: see vcpu_do_write(). None: no longer. Not of a view with an owner.
 */
int vm_protect(struct vm *vm, const uint64_t *pages, unsigned count, struct err *e);
static inline size_t vm_bitmap_words(const struct vm *vm)
{
    return bitmap_words(vm->memory.size / PAGE_BYTES);
}
/* Attach a part, which vm_destroy() frees: those attached last first. */
void vm_attach(struct vm *vm, struct vm_part *part);
/* KVM_RUN failed with EFAULT: whether it is worth another try. */
bool vm_make_way(struct vm *vm);
void vm_destroy(struct vm *vm);

#endif
