/* Putting a trace in place and taking it away: see vmm/trace.h. */
#include "vmm/trace.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "mmu/walk.h"

#define HLT 0xf4
/* The pages of the trace: above all RAM, below the 39 physical address bits of ditto-v1. */
#define REGION_GPA   0x7f00000000ull
#define REGION_BYTES (TRACE_TABLE_BYTES + TRACE_MAPPED)
#define REGION_SLOT  2
#define LARGE_PAGE   (2ull << 20)
/* How far from the site the trace may lie: rel32 less the size of everything. */
#define REACH   ((2ull << 30) - 4 * LARGE_PAGE)
#define CR3_PWT 8ull

static uint8_t *region_of(struct vm *vm)
{
    struct kvm_userspace_memory_region slot = {
        .slot = REGION_SLOT,
        .guest_phys_addr = REGION_GPA,
        .memory_size = REGION_BYTES,
    };

    if (vm->trace_region)
        return vm->trace_region;
    void *region =
        mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return NULL;
    slot.userspace_addr = (uintptr_t)region;
    if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0) {
        munmap(region, REGION_BYTES);
        return NULL;
    }
    vm->trace_region = region;
    vm->trace_region_bytes = REGION_BYTES;
    return region;
}

/* ---- mapping ---- */

/* The first page-table entry on the way to va that is empty, with its level (3: PML4 .. 1: PD).
 * NULL when va is mapped, or its 2 MiB are used. */
static uint64_t *empty_entry(const struct guest_memory *m, uint64_t cr3, unsigned cpl, uint64_t va,
                             unsigned *level)
{
    uint64_t table = cr3 & PTE_ADDRESS;

    for (*level = 3; *level >= 1; (*level)--) {
        uint64_t index = va >> (12 + 9 * *level) & 511;
        uint64_t *entry = guest_memory_at(m, table + index * 8, 8);
        if (!entry)
            return NULL;
        if (*entry == 0)
            return entry;
        if (!(*entry & PTE_PRESENT) || (*entry & (PTE_LARGE | PTE_NX)) || !(*entry & PTE_WRITE) ||
            (cpl == 3 && !(*entry & PTE_USER)))
            return NULL;
        table = *entry & PTE_ADDRESS;
    }
    return NULL;
}

static bool is_canonical(uint64_t va)
{
    return (uint64_t)((int64_t)(va << 16) >> 16) == va;
}

/* An unused 2 MiB of address space near the site. */
static uint64_t *find_place(struct trace_filter *f, const struct guest_memory *m, unsigned *level)
{
    uint64_t site = f->site & ~(LARGE_PAGE - 1);

    for (uint64_t distance = LARGE_PAGE; distance < REACH; distance += LARGE_PAGE) {
        const uint64_t candidates[] = {site + distance, site - distance};
        for (unsigned i = 0; i < 2; i++) {
            if (!is_canonical(candidates[i]))
                continue;
            uint64_t *entry = empty_entry(m, f->cr3, f->cpl, candidates[i], level);
            if (entry) {
                f->base = candidates[i];
                return entry;
            }
        }
    }
    return NULL;
}

/* Fill our own tables below the empty entry (which stays empty) and return what it is to hold. */
static uint64_t build_tables(struct trace_filter *f, uint8_t *region, unsigned level)
{
    const uint64_t flags =
        PTE_PRESENT | PTE_WRITE | PTE_ACCESSED | PTE_DIRTY | (f->cpl == 3 ? PTE_USER : 0);
    uint64_t below = 0;

    memset(region, 0, TRACE_TABLE_BYTES);
    for (unsigned l = 1; l <= level; l++) {
        uint64_t *table = (uint64_t *)(region + (l - 1) * 4096);
        if (l == 1) {
            for (unsigned page = 0; page < TRACE_MAPPED / 4096; page++)
                table[page] = (REGION_GPA + TRACE_TABLE_BYTES + page * 4096) | flags;
        } else {
            table[f->base >> (12 + 9 * (l - 1)) & 511] = below;
        }
        below = (REGION_GPA + (l - 1) * 4096) | flags;
    }
    return below;
}

/* KVM flushes the guest's TLB when CR3 changes under it; nothing else makes it forget our mapping.
 */
static void flush_tlb(struct vcpu *vcpu)
{
    struct kvm_sregs sregs, other;

    vcpu_get_sregs(vcpu, &sregs);
    other = sregs;
    other.cr3 ^= CR3_PWT;
    vcpu_set_sregs(vcpu, &other);
    vcpu_set_sregs(vcpu, &sregs);
}

/* ---- ways into the kernel ---- */

static bool pushes_error_code(unsigned vector)
{
    return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 ||
           vector == 29 || vector == 30;
}

static void add_trap(struct trace_filter *f, uint64_t va, bool frame, bool error_code)
{
    const struct guest_memory *m = &f->vcpu->vm->memory;
    struct translation t;

    for (unsigned i = 0; i < f->trap_count; i++)
        if (f->trap[i].va == va)
            return;
    uint8_t *at = walk(m, f->cr3, va, &t) ? guest_memory_at(m, t.gpa, 1) : NULL;
    if (!at || f->trap_count == TRACE_TRAPS)
        return;
    f->trap[f->trap_count++] = (struct trace_trap){va, at, *at, error_code, frame};
    *at = HLT;
}

static void set_traps(struct trace_filter *f, const struct gp_hook *hook,
                      const struct kvm_sregs *sregs)
{
    const struct guest_memory *m = &f->vcpu->vm->memory;
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[2];
    } msrs = {.head.nmsrs = 2, .entry = {{.index = 0xc0000082}, {.index = 0xc0000083}}};

    f->trap_count = 0;
    for (unsigned vector = 0; vector <= 0x80; vector = vector == 31 ? 0x80 : vector + 1) {
        uint64_t gate[2];
        if (sregs->idt.limit < 16 * vector + 15 ||
            walk_read(m, f->cr3, sregs->idt.base + 16 * vector, gate, 16) != 16 ||
            !(gate[0] >> 47 & 1))
            continue;
        uint64_t handler = (gate[0] & 0xffff) | (gate[0] >> 32 & 0xffff0000) | gate[1] << 32;
        if (handler != hook->rip)
            add_trap(f, handler, true, pushes_error_code(vector));
    }
    if (f->cpl == 3 && ioctl(f->vcpu->fd, KVM_GET_MSRS, &msrs) == 2) {
        add_trap(f, msrs.entry[0].data, false, false); /* LSTAR */
        add_trap(f, msrs.entry[1].data, false, false); /* CSTAR */
    }
}

static void clear_traps(struct trace_filter *f)
{
    for (unsigned i = 0; i < f->trap_count; i++)
        if (*f->trap[i].at == HLT)
            *f->trap[i].at = f->trap[i].saved;
    f->trap_count = 0;
}

/* ---- the filter ---- */

static bool in_trace(const struct trace_filter *f, uint64_t rip)
{
    uint64_t code = f->base + TRACE_CODE_OFFSET;

    return f->map_count && rip >= code && rip < code + TRACE_CODE_BYTES;
}

uint64_t trace_filter_original(const struct trace_filter *f, uint64_t rip)
{
    if (!in_trace(f, rip))
        return rip;
    uint32_t offset = (uint32_t)(rip - f->base - TRACE_CODE_OFFSET);
    uint64_t original = f->site; /* in front of the first copy are its comparisons */
    for (unsigned i = 0; i < f->map_count && f->map[i].offset <= offset; i++)
        original = f->map[i].original;
    return original;
}

static void enter(struct trace_filter *f, const struct kvm_regs *regs,
                  const struct kvm_sregs *sregs)
{
    struct kvm_regs in = *regs;

    in.rip = f->base + TRACE_CODE_OFFSET + f->map[0].offset;
    if (f->cpl == 3)
        vcpu_set_sregs(f->vcpu, sregs);
    vcpu_set_regs(f->vcpu, &in);
}

bool trace_filter_start(struct trace_filter *f, struct vcpu *vcpu, const struct gp_hook *hook,
                        const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                        const struct trace_condition *conditions, unsigned count)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    unsigned level;
    uint8_t *region = region_of(vcpu->vm);

    assert(!f->active);
    f->vcpu = vcpu;
    f->site = regs->rip;
    f->cr3 = sregs->cr3;
    f->cpl = sregs->ss.dpl;
    f->map_count = 0;
    f->map_limit = TRACE_FIRST_INSNS << (f->learned_count < 6 ? f->learned_count : 6);
    if (f->map_limit > TRACE_MAX_INSNS)
        f->map_limit = TRACE_MAX_INSNS;
    f->entry = region ? find_place(f, m, &level) : NULL;
    if (!f->entry)
        return false;
    if (!trace_build(f, region + TRACE_TABLE_BYTES, conditions, count)) {
        f->map_count = 0;
        return false;
    }
    *f->entry = build_tables(f, region, level);
    set_traps(f, hook, sregs);
    enter(f, regs, sregs);
    f->active = true;
    return true;
}

static void learn(struct trace_filter *f, uint64_t place)
{
    bool known = place == 0;

    for (unsigned i = 0; i < f->learned_count; i++)
        known |= f->learned[i] == place;
    if (!known && f->learned_count < TRACE_LEARNED)
        f->learned[f->learned_count++] = place;
}

void trace_filter_stop(struct trace_filter *f)
{
    if (!f->active)
        return;
    f->active = false;
    clear_traps(f);
    *f->entry = 0;
    flush_tlb(f->vcpu);
    const uint64_t *words =
        (const uint64_t *)(f->vcpu->vm->trace_region + TRACE_TABLE_BYTES + TRACE_DATA_OFFSET);
    learn(f, words[TRACE_SEEN]);
    if (words[TRACE_LEFT])
        learn(f, (f->site & ~0xffffffffull) | words[TRACE_LEFT]);
}

bool trace_filter_handle(struct trace_filter *f, const struct vcpu_exit *exit)
{
    const struct guest_memory *m = &f->vcpu->vm->memory;
    struct translation t;
    struct kvm_regs regs;

    if (!f->active || exit->kind != EXIT_HLT)
        return false;
    for (unsigned i = 0; i < f->trap_count; i++) {
        const struct trace_trap trap = f->trap[i];
        if (f->vcpu->regs->rip != trap.va + 1)
            continue;
        regs = *f->vcpu->regs;
        regs.rip = trap.va;
        uint64_t slot = regs.rsp + (trap.error_code ? 8 : 0);
        uint64_t *rip =
            trap.frame && walk(m, f->cr3, slot, &t) ? guest_memory_at(m, t.gpa, 8) : NULL;
        if (rip)
            *rip = trace_filter_original(f, *rip);
        trace_filter_stop(f);
        vcpu_set_regs(f->vcpu, &regs);
        return true;
    }
    return false;
}
