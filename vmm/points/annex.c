#include "vmm/points/annex.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mmu/insn.h"
#include "mmu/walk.h"
#include "vmm/points/gphook.h"

#define VECTORS 256u

/*
 * Where it lies: above all RAM, below the 39 physical address bits of ditto-v1; at the first of
 * these places that the guest has no use for. To the guest nothing is there: whatever it does with
 * such an address is an MMIO exit, with an annex and without. So while it is closed nobody can get
 * at it, and who tries has it make way (annex_make_way()); it does not open where the guest's page
 * tables lead to it.
 */
#define PLACE_FIRST 0x7f00000000ull
#define PLACE_STEP  0x40000000ull
#define PLACE_LAST  (MEMORY_HIGH_BASE + MEMORY_MAX)
/* The first four pages are page tables: one of each level. */
#define TABLE_BYTES  (4 * PAGE_BYTES)
#define REGION_BYTES (TABLE_BYTES + ANNEX_BYTES)
#define REGION_SLOT  2

enum { TABLE_PAGES, TABLE_DIRECTORY, TABLE_POINTERS, TABLE_ROOT };

_Static_assert(ANNEX_BYTES <= 512 * PAGE_BYTES, "one page table maps the annex");

/* ---- where it is ---- */

static bool set_slot(struct vm *vm, const struct annex *annex, uint64_t size)
{
    struct kvm_userspace_memory_region slot = {
        .slot = REGION_SLOT,
        .guest_phys_addr = annex->gpa,
        .memory_size = size,
        .userspace_addr = (uintptr_t)annex->kvms,
    };

    return ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot) == 0;
}

/* The next place; none is left behind the last one. */
static void move(struct vm *vm, struct annex *annex)
{
    set_slot(vm, annex, 0);
    annex->gpa = annex->gpa - PLACE_STEP >= PLACE_LAST ? annex->gpa - PLACE_STEP : 0;
    if (annex->gpa && !set_slot(vm, annex, REGION_BYTES))
        annex->gpa = 0;
}

/* What of it KVM sees, and the guest. */
static void show(struct annex *annex, bool on)
{
    int rc = mprotect(annex->kvms, REGION_BYTES, on ? PROT_READ | PROT_WRITE : PROT_NONE);

    assert(rc == 0);
}

/* The same pages twice: ours, and KVM's, which has them only while it is open. */
static bool map_region(struct annex *annex)
{
    const int fd = memfd_create("annex", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, REGION_BYTES) == 0) {
        annex->region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        annex->kvms = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0)
        close(fd);
    return annex->region != MAP_FAILED && annex->kvms != MAP_FAILED;
}

static void annex_free(struct vm_part *part)
{
    struct annex *annex = (struct annex *)part;

    if (annex->region != MAP_FAILED)
        munmap(annex->region, REGION_BYTES);
    if (annex->kvms != MAP_FAILED)
        munmap(annex->kvms, REGION_BYTES);
    free(annex);
}

/* The guest may have tried to get at the closed annex, which is elsewhere then: what it did comes
 * out as MMIO when it runs again. */
static bool annex_make_way(struct vm *vm)
{
    struct annex *annex = vm->annex;

    if (!annex->gpa || annex->guest_root)
        return false;
    move(vm, annex);
    return true;
}

static struct annex *make(struct vm *vm)
{
    struct annex *annex = calloc(1, sizeof *annex);

    if (!annex)
        return NULL;
    annex->part = (struct vm_part){.free = annex_free, .make_way = annex_make_way};
    annex->region = annex->kvms = MAP_FAILED;
    annex->gpa = PLACE_FIRST;
    if (!map_region(annex) || !set_slot(vm, annex, REGION_BYTES)) {
        annex_free(&annex->part);
        return NULL;
    }
    annex->pages = annex->region + TABLE_BYTES;
    return annex;
}

struct annex *annex_of(struct vm *vm)
{
    if (!vm->annex) {
        vm->annex = make(vm);
        if (vm->annex)
            vm_attach(vm, &vm->annex->part);
    }
    return vm->annex && vm->annex->gpa ? vm->annex : NULL;
}

bool annex_ready(struct vm *vm, uint64_t cr3)
{
    struct annex *annex;

    while ((annex = annex_of(vm)) && walk_leads_to(&vm->memory, cr3, annex->gpa, REGION_BYTES))
        move(vm, annex);
    return annex != NULL;
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
    root[slot] = (annex->gpa + TABLE_POINTERS * PAGE_BYTES) | PTE_PRESENT | PTE_WRITE | PTE_USER |
                 PTE_ACCESSED;
}

static void build_tables(struct annex *annex)
{
    const uint64_t flags = PTE_PRESENT | PTE_WRITE | PTE_ACCESSED | PTE_DIRTY;
    uint64_t *pages = table(annex, TABLE_PAGES);

    memset(annex->region, 0, TABLE_BYTES);
    for (unsigned page = 0; page < ANNEX_BYTES / PAGE_BYTES; page++)
        pages[page] = (annex->gpa + TABLE_BYTES + page * PAGE_BYTES) | flags |
                      (annex->user && page >= ANNEX_TRACE / PAGE_BYTES ? PTE_USER : 0);
    table(annex, TABLE_DIRECTORY)[0] = annex->gpa | flags | PTE_USER;
    table(annex, TABLE_POINTERS)[0] =
        (annex->gpa + TABLE_DIRECTORY * PAGE_BYTES) | flags | PTE_USER;
    copy_root(annex);
}

void annex_open(struct annex *annex, struct vcpu *vcpu, uint64_t base, bool user)
{
    struct kvm_sregs sregs;

    vcpu_get_sregs(vcpu, &sregs);
    assert(!annex->guest_root);
    annex->guest_root = root_table(vcpu->vm, sregs.cr3);
    assert(annex->guest_root);
    show(annex, true);
    annex->base = base;
    annex->user = user;
    build_tables(annex);
    vcpu_alias_cr3(vcpu, sregs.cr3,
                   (annex->gpa + TABLE_ROOT * PAGE_BYTES) | (sregs.cr3 & ~PTE_ADDRESS));
}

void annex_close(struct annex *annex, struct vcpu *vcpu)
{
    assert(annex->guest_root);
    if (annex->trapping)
        vcpu_alias_idt(vcpu, NULL);
    annex->trapping = false;
    annex->guest_root = NULL;
    vcpu_alias_cr3(vcpu, 0, 0);
    show(annex, false);
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
        if ((int)vector != annex->except || annex->handler)
            gate_redirect(ours + vector * GATE_BYTES, (int)vector == annex->except
                                                          ? annex->handler
                                                          : annex->base + ANNEX_HLTS + vector);
}

void annex_trap_vectors(struct annex *annex, struct vcpu *vcpu, int except, uint64_t handler)
{
    struct kvm_sregs sregs;

    assert(annex->guest_root && !annex->trapping);
    vcpu_get_sregs(vcpu, &sregs);
    annex->idtr = sregs.idt;
    annex->except = except;
    annex->handler = handler;
    memset(annex->pages + ANNEX_HLTS, HLT, VECTORS);
    copy_idt(annex, vcpu, true);
    struct kvm_dtable own = {.base = annex->base + ANNEX_IDT, .limit = sregs.idt.limit};
    vcpu_alias_idt(vcpu, &own);
    annex->trapping = true;
}

bool annex_is_entered(const struct annex *annex, const struct vcpu *vcpu)
{
    return annex->trapping && vcpu->regs->rip - annex->base < ANNEX_TRACE;
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
