#include "vmm/annex.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "mmu/walk.h"
#include "vmm/gphook.h"
#include "vmm/insn.h"

#define VECTORS 256u

/* Above all RAM, below the 39 physical address bits of ditto-v1. The first four pages are page
 * tables: one of each level. */
#define REGION_GPA   0x7f00000000ull
#define TABLE_BYTES  (4 * PAGE_BYTES)
#define REGION_BYTES (TABLE_BYTES + ANNEX_BYTES)
#define REGION_SLOT  2

enum { TABLE_PAGES, TABLE_DIRECTORY, TABLE_POINTERS, TABLE_ROOT };

_Static_assert(ANNEX_BYTES <= 512 * PAGE_BYTES, "one page table maps the annex");

struct annex *annex_of(struct vm *vm)
{
    struct kvm_userspace_memory_region slot = {
        .slot = REGION_SLOT,
        .guest_phys_addr = REGION_GPA,
        .memory_size = REGION_BYTES,
    };

    if (vm->annex)
        return vm->annex;
    struct annex *annex = calloc(1, sizeof *annex);
    if (!annex)
        return NULL;
    void *region =
        mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    slot.userspace_addr = (uintptr_t)region;
    if (region == MAP_FAILED || ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0) {
        if (region != MAP_FAILED)
            munmap(region, REGION_BYTES);
        free(annex);
        return NULL;
    }
    annex->region = region;
    annex->pages = annex->region + TABLE_BYTES;
    vm->annex = annex;
    return annex;
}

void annex_free(struct annex *annex)
{
    if (!annex)
        return;
    munmap(annex->region, REGION_BYTES);
    free(annex);
}

/* The guest's root page table, if all of it is RAM. */
static const uint64_t *root_table(const struct vm *vm, uint64_t cr3)
{
    return guest_memory_any(&vm->memory, cr3 & PTE_ADDRESS, PAGE_BYTES); /* it may be lent */
}

/*
 * That an entry is empty does not say that the guest does not use it: for user addresses, memory is
 * mapped when it is touched. But Linux leaves the first 8 TiB of the kernel's half free
 * (Documentation/arch/x86/x86_64/mm.rst), so that half comes first.
 */
bool annex_find_base(const struct vm *vm, uint64_t cr3, uint64_t *base)
{
    const uint64_t *root = root_table(vm, cr3);

    for (unsigned i = 0; root && i < 512; i++) {
        unsigned slot = (i + 256) % 512;
        *base = (uint64_t)((int64_t)((uint64_t)slot << 55) >> 16);
        if (!root[slot])
            return true;
    }
    return false;
}

bool annex_is_free(const struct vm *vm, uint64_t cr3, uint64_t base)
{
    const uint64_t *root = root_table(vm, cr3);

    return root && !root[base >> 39 & 511];
}

static uint64_t *table(struct annex *annex, unsigned which)
{
    return (uint64_t *)(annex->region + which * PAGE_BYTES);
}

static void copy_root(struct annex *annex)
{
    const unsigned slot = annex->base >> 39 & 511;
    uint64_t *root = table(annex, TABLE_ROOT);

    memcpy(root, annex->guest_root, PAGE_BYTES);
    root[slot] = (REGION_GPA + TABLE_POINTERS * PAGE_BYTES) | PTE_PRESENT | PTE_WRITE | PTE_USER |
                 PTE_ACCESSED;
}

static void build_tables(struct annex *annex)
{
    const uint64_t flags = PTE_PRESENT | PTE_WRITE | PTE_ACCESSED | PTE_DIRTY;
    uint64_t *pages = table(annex, TABLE_PAGES);

    memset(annex->region, 0, TABLE_BYTES);
    for (unsigned page = 0; page < ANNEX_BYTES / PAGE_BYTES; page++)
        pages[page] = (REGION_GPA + TABLE_BYTES + page * PAGE_BYTES) | flags |
                      (annex->user && page >= ANNEX_TRACE / PAGE_BYTES ? PTE_USER : 0);
    table(annex, TABLE_DIRECTORY)[0] = REGION_GPA | flags | PTE_USER;
    table(annex, TABLE_POINTERS)[0] =
        (REGION_GPA + TABLE_DIRECTORY * PAGE_BYTES) | flags | PTE_USER;
    copy_root(annex);
}

void annex_open(struct annex *annex, struct vcpu *vcpu, uint64_t base, bool user)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    assert(!annex->guest_root);
    annex->guest_root = root_table(vcpu->vm, sregs.cr3);
    assert(annex->guest_root);
    annex->base = base;
    annex->user = user;
    build_tables(annex);
    vcpu_alias_cr3(vcpu, sregs.cr3,
                   (REGION_GPA + TABLE_ROOT * PAGE_BYTES) | (sregs.cr3 & ~PTE_ADDRESS));
}

void annex_close(struct annex *annex, struct vcpu *vcpu)
{
    assert(annex->guest_root);
    if (annex->trapping)
        vcpu_alias_idt(vcpu, NULL);
    annex->trapping = false;
    annex->guest_root = NULL;
    vcpu_alias_cr3(vcpu, 0, 0);
}

/* ---- ways into the kernel ---- */

static void copy_idt(struct annex *annex, struct vcpu *vcpu, bool always)
{
    uint8_t now[sizeof annex->idt], *ours = annex->pages + ANNEX_IDT;
    size_t size = (size_t)annex->idtr.limit + 1;
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    if (size > sizeof now)
        size = sizeof now;
    memset(now, 0, sizeof now);
    walk_read(&vcpu->vm->memory, sregs.cr3, annex->idtr.base, now, size);
    if (!always && !memcmp(now, annex->idt, sizeof now))
        return;
    memcpy(annex->idt, now, sizeof now);
    memcpy(ours, now, sizeof now);
    for (unsigned vector = 0; vector < VECTORS; vector++)
        if ((int)vector != annex->except)
            gate_redirect(ours + vector * GATE_BYTES, annex->base + ANNEX_HLTS + vector);
}

void annex_trap_vectors(struct annex *annex, struct vcpu *vcpu, int except)
{
    struct kvm_sregs sregs;

    assert(annex->guest_root && !annex->trapping);
    vcpu_get_sregs(vcpu, &sregs);
    annex->idtr = sregs.idt;
    annex->except = except;
    memset(annex->pages + ANNEX_HLTS, HLT, VECTORS);
    copy_idt(annex, vcpu, true);
    struct kvm_dtable own = {.base = annex->base + ANNEX_IDT, .limit = sregs.idt.limit};
    vcpu_alias_idt(vcpu, &own);
    annex->trapping = true;
}

bool annex_trapped(struct annex *annex, struct vcpu *vcpu, const struct vcpu_exit *exit,
                   uint64_t *handler)
{
    const uint64_t at = vcpu->regs->rip - 1 - (annex->base + ANNEX_HLTS);
    struct kvm_sregs sregs;
    struct gate gate;

    if (!annex->trapping || exit->kind != EXIT_HLT || at >= VECTORS)
        return false;
    vcpu_get_sregs(vcpu, &sregs);
    /* Otherwise the guest found the HLTs by itself: an exit that no recording has. */
    if (!gate_read(&vcpu->vm->memory, &sregs, (unsigned)at, &gate))
        return false;
    *handler = gate.handler;
    return true;
}

void annex_refresh(struct annex *annex, struct vcpu *vcpu)
{
    copy_root(annex);
    if (annex->trapping)
        copy_idt(annex, vcpu, false);
}
