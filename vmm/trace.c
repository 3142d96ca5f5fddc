/* Putting a trace in place and taking it away: see vmm/trace.h and vmm/trace_code.h. */
#include <assert.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "mmu/walk.h"
#include "vmm/trace_code.h"

/* The pages of the trace: above all RAM, below the 39 physical address bits of ditto-v1. The first
 * four are page tables. */
#define REGION_GPA   0x7f00000000ull
#define TABLE_BYTES  (4 * PAGE_BYTES)
#define REGION_BYTES (TABLE_BYTES + TRACE_BYTES)
#define REGION_SLOT  2
#define LARGE_PAGE   (2ull << 20)
#define RFLAGS_TF    0x100ull
#define DR7_ENABLED  0xffull
/* The exceptions by which code gets into its kernel: all vectors but the reserved ones. */
#define EXCEPTIONS 0x703f7dffu

_Static_assert(TRACE_BYTES <= LARGE_PAGE, "one page table maps the trace");

static struct trace *trace_of(struct vm *vm)
{
    struct kvm_userspace_memory_region slot = {
        .slot = REGION_SLOT,
        .guest_phys_addr = REGION_GPA,
        .memory_size = REGION_BYTES,
    };
    struct trace *t = vm->trace;

    if (t)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    void *region =
        mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    slot.userspace_addr = (uintptr_t)region;
    if (region == MAP_FAILED || ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0) {
        if (region != MAP_FAILED)
            munmap(region, REGION_BYTES);
        free(t);
        return NULL;
    }
    t->memory = &vm->memory;
    t->region = region;
    t->words = (uint64_t *)(t->region + TABLE_BYTES + TRACE_WORDS_OFFSET);
    t->table = (uint32_t *)(t->region + TABLE_BYTES + TRACE_TABLE_OFFSET);
    t->code = t->region + TABLE_BYTES + TRACE_CODE_OFFSET;
    vm->trace = t;
    return t;
}

void trace_free(struct trace *t)
{
    if (!t)
        return;
    munmap(t->region, REGION_BYTES);
    free(t);
}

/* ---- mapping ---- */

/* The guest's root page table, if all of it is RAM. */
static const uint64_t *root_table(const struct trace *t)
{
    return guest_memory_at(t->memory, t->root & PTE_ADDRESS, PAGE_BYTES);
}

/*
 * Where the trace lies: 512 GiB that the guest does not use itself. That the entry is empty does
 * not say so for user addresses, for memory is mapped when it is touched; but Linux leaves the
 * first 8 TiB of the kernel's half free (Documentation/arch/x86/x86_64/mm.rst).
 */
static bool find_base(struct trace *t)
{
    const uint64_t *root = root_table(t);

    for (unsigned i = 0; root && i < 512; i++) {
        unsigned slot = (i + 256) % 512;
        t->base = (uint64_t)((int64_t)((uint64_t)slot << 55) >> 16);
        if (!root[slot])
            return true;
    }
    return false;
}

static bool base_is_free(const struct trace *t)
{
    const uint64_t *root = root_table(t);

    return root && !root[t->base >> 39 & 511];
}

/*
 * The CPU uses a copy of the guest's root page table, in which the trace is mapped too: kernel code
 * looks at its own page tables, and copies them for new processes. Returns what CR3 is to be.
 */
static uint64_t build_tables(struct trace *t)
{
    const uint64_t flags =
        PTE_PRESENT | PTE_WRITE | PTE_ACCESSED | PTE_DIRTY | (t->cpl == 3 ? PTE_USER : 0);
    uint64_t *const pages = (uint64_t *)t->region, *const directory = pages + 512;
    uint64_t *const pointers = pages + 1024, *const root = pages + 1536;

    memset(t->region, 0, TABLE_BYTES);
    for (unsigned page = 0; page < TRACE_BYTES / PAGE_BYTES; page++)
        pages[page] = (REGION_GPA + TABLE_BYTES + page * PAGE_BYTES) | flags;
    directory[t->base >> 21 & 511] = REGION_GPA | flags;
    pointers[t->base >> 30 & 511] = (REGION_GPA + PAGE_BYTES) | flags;
    memcpy(root, root_table(t), PAGE_BYTES);
    root[t->base >> 39 & 511] = (REGION_GPA + 2 * PAGE_BYTES) | flags;
    return (REGION_GPA + 3 * PAGE_BYTES) | (t->root & ~PTE_ADDRESS);
}

/* ---- ways into the kernel ---- */

/* A breakpoint on a way into the kernel. False when that is impossible. */
static bool add_trap(struct trace *t, uint64_t va, bool frame)
{
    struct translation to;

    for (unsigned i = 0; i < t->trap_count; i++)
        if (t->trap[i].va == va)
            return true;
    /* A gate may still lead to start-up code whose memory holds something else by now: nothing gets
     * into the kernel there. */
    if (!walk(t->memory, t->root, va, &to) || !to.executable)
        return true;
    uint8_t *at = guest_memory_at(t->memory, to.gpa, 1);
    if (!at || t->trap_count == TRACE_TRAPS)
        return false;
    t->trap[t->trap_count++] = (struct trace_trap){va, to.gpa, at, *at, frame};
    *at = HLT;
    return true;
}

/* The handlers of exceptions and, from user code, of INT n and of system calls (LSTAR, CSTAR,
 * SYSENTER_EIP). */
static bool set_traps(struct trace *t, struct vcpu *vcpu, const struct kvm_sregs *sregs)
{
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[3];
    } msrs = {.head.nmsrs = 3,
              .entry = {{.index = 0xc0000082}, {.index = 0xc0000083}, {.index = 0x176}}};
    bool all = true;

    t->trap_count = 0;
    for (unsigned vector = 0; vector < 256; vector++) {
        struct gate gate;
        if ((vector < 32 && !(EXCEPTIONS >> vector & 1)) || (vector >= 32 && t->cpl == 0) ||
            !gate_read(t->memory, sregs, vector, &gate) || (vector >= 32 && gate.dpl != 3))
            continue;
        if (gate.handler != t->hook->rip)
            all &= add_trap(t, gate.handler, true);
    }
    if (t->cpl == 0)
        return all;
    all &= ioctl(vcpu->fd, KVM_GET_MSRS, &msrs) == 3;
    for (unsigned i = 0; i < 3; i++)
        if (msrs.entry[i].data)
            all &= add_trap(t, msrs.entry[i].data, false);
    return all;
}

static void clear_traps(struct trace *t)
{
    for (unsigned i = 0; i < t->trap_count; i++)
        if (*t->trap[i].at == HLT)
            *t->trap[i].at = t->trap[i].saved;
    t->trap_count = 0;
}

/* ---- the trace ---- */

/* Where an address lies in the code, if it does. */
static bool in_code(const struct trace *t, uint64_t rip, uint32_t *offset)
{
    uint64_t distance = rip - (t->base + TRACE_CODE_OFFSET);

    *offset = (uint32_t)distance;
    return distance < TRACE_CODE_BYTES;
}

static bool in_compare(const struct trace *t, uint32_t offset)
{
    return offset - t->compare < TRACE_COMPARE_BYTES || offset - t->quick < TRACE_QUICK_BYTES;
}

/* The original address of the instruction of which the code at an offset is the copy. */
static uint64_t original(const struct trace *t, uint32_t offset)
{
    const struct trace_map *entry = in_compare(t, offset) ? NULL : trace_find(t, offset);

    return entry ? entry->original : t->site;
}

static void go_to(struct trace *t, struct vcpu *vcpu, uint64_t rip, struct kvm_regs *regs,
                  const struct kvm_sregs *sregs)
{
    regs->rip = rip;
    if (t->cpl == 3)
        vcpu_set_sregs(vcpu, sregs);
    vcpu_set_regs(vcpu, regs);
}

static uint64_t code_address(const struct trace *t, uint32_t offset)
{
    return t->base + TRACE_CODE_OFFSET + offset;
}

/* Whether the guest's debugging would be misled by a copy of its code, or it is not 64-bit code. */
static bool is_special(struct vcpu *vcpu, const struct kvm_regs *regs,
                       const struct kvm_sregs *sregs)
{
    struct kvm_debugregs debug;

    return !sregs->cs.l || (regs->rflags & RFLAGS_TF) ||
           ioctl(vcpu->fd, KVM_GET_DEBUGREGS, &debug) < 0 || (debug.dr7 & DR7_ENABLED);
}

/* Find the trace of an earlier time still true, or begin a new one. */
static bool prepare(struct trace *t, const struct kvm_regs *regs, const struct kvm_sregs *sregs)
{
    const uint64_t cr3 = sregs->ss.dpl == 3 ? sregs->cr3 : 0;
    bool same =
        t->site == regs->rip && t->cpl == sregs->ss.dpl && t->cr3 == cr3 && t->len && !t->full;

    t->root = sregs->cr3;
    if (same && base_is_free(t) && trace_is_current(t))
        return true;
    t->site = regs->rip;
    t->cpl = sregs->ss.dpl;
    t->cr3 = cr3;
    t->len = 0;
    if (!find_base(t))
        return false;
    trace_reset(t);
    return true;
}

bool trace_start(struct vcpu *vcpu, const struct gp_hook *hook, const struct kvm_regs *regs,
                 const struct kvm_sregs *sregs, const struct trace_condition *conditions,
                 unsigned count)
{
    struct trace *t = trace_of(vcpu->vm);
    struct translation site;
    struct kvm_regs in = *regs;

    assert(count >= 1 && count <= TRACE_CONDITIONS);
    if (!t || !walk(&vcpu->vm->memory, sregs->cr3, regs->rip, &site))
        return false;
    memcpy(t->condition, conditions, count * sizeof *conditions);
    t->conditions = count;
    if (t->active) { /* go on in it */
        assert(t->site == regs->rip && t->root == sregs->cr3);
        if (!trace_copy(t, t->site) || !t->site_copied)
            return false;
        trace_emit_compare(t);
        go_to(t, vcpu, code_address(t, t->body), &in, sregs);
        return true;
    }
    t->hook = hook;
    if (is_special(vcpu, regs, sregs) || !prepare(t, regs, sregs))
        return false;
    if (!trace_copy(t, t->site) || !t->site_copied)
        return false;
    trace_emit_compare(t);
    t->cs = sregs->cs;
    t->ss = sregs->ss;
    t->cr2 = sregs->cr2;
    t->site_gpa = site.gpa;
    t->site_byte = *(uint8_t *)guest_memory_at(t->memory, site.gpa, 1);
    if (!set_traps(t, vcpu, sregs)) {
        clear_traps(t);
        return false;
    }
    t->active = true;
    vcpu_alias_cr3(vcpu, t->root, build_tables(t));
    go_to(t, vcpu, code_address(t, t->body), &in, sregs);
    return true;
}

void trace_stop(struct vcpu *vcpu)
{
    struct trace *t = vcpu->vm->trace;

    if (!t || !t->active)
        return;
    t->active = false;
    clear_traps(t);
    vcpu_alias_cr3(vcpu, 0, 0);
}

/* The guest comes into its kernel: there it finds everything as it would be without us. A fault of
 * the comparison itself is undone; the caller compares then. */
static enum trace_verdict trapped(struct trace *t, struct vcpu *vcpu, const struct trace_trap *trap,
                                  struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    struct exception_frame frame;
    struct translation to;
    uint32_t offset;

    *regs = *vcpu->regs;
    regs->rip = trap->va;
    /* The frame begins with RIP or, below it, an error code; several vectors may share a handler.
     */
    uint64_t at = regs->rsp, *rip = NULL;
    for (unsigned i = 0; i < 2 && trap->frame; i++, at += 8) {
        rip = walk(t->memory, t->root, at, &to) ? guest_memory_at(t->memory, to.gpa, 8) : NULL;
        if (rip && in_code(t, *rip, &offset))
            break;
        rip = NULL;
    }
    if (rip) {
        const struct trace_map *entry = trace_find(t, offset);
        if (in_compare(t, offset) &&
            walk_read(t->memory, t->root, at - 8, &frame, sizeof frame) == sizeof frame) {
            vcpu_get_sregs(vcpu, sregs);
            sregs->cs = t->cs;
            sregs->ss = t->ss;
            sregs->cr2 = t->cr2;
            regs->rip = t->site;
            regs->rsp = frame.rsp;
            regs->rflags = frame.rflags & ~RFLAGS_RF;
            regs->rcx = t->words[WORD_RCX];
            if (offset - t->quick >= TRACE_QUICK_BYTES)
                regs->rdx = t->words[WORD_RDX];
            vcpu_set_sregs(vcpu, sregs);
            vcpu_set_regs(vcpu, regs);
            return TRACE_TRUE;
        }
        *rip = original(t, offset);
        if (entry && entry->borrowed)
            ((uint64_t *)regs)[entry->borrowed - 1] = t->words[WORD_BORROW];
    }
    trace_stop(vcpu);
    vcpu_set_regs(vcpu, regs);
    return TRACE_RUN_ON;
}

enum trace_verdict trace_exit(struct vcpu *vcpu, const struct vcpu_exit *exit,
                              struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    struct trace *t = vcpu->vm->trace;
    uint64_t target;
    uint32_t offset, copy;

    if (!t || !t->active || exit->kind > EXIT_SYNC_LAST)
        return TRACE_OTHER;
    for (unsigned i = 0; exit->kind == EXIT_HLT && i < t->trap_count; i++)
        if (vcpu->regs->rip == t->trap[i].va + 1)
            return trapped(t, vcpu, &t->trap[i], regs, sregs);
    if (!gphook_breakpoint(vcpu, t->hook, exit, t->cpl, &t->cs, &t->ss, regs, sregs)) {
        if (in_code(t, vcpu->regs->rip, &offset)) /* an exit of the guest's own: for the report */
            vcpu->regs->rip = original(t, offset);
        return TRACE_OTHER;
    }
    if (!in_code(t, regs->rip, &offset))
        return TRACE_OTHER;
    if (offset == t->match_at) {
        regs->rip = t->site;
        return TRACE_TRUE;
    }
    if (!trace_extend(t, offset, &copy, &target))
        return TRACE_OTHER;
    if (!copy && t->cpl == 0)
        trace_stop(vcpu); /* kernel code could see which page tables are in use */
    go_to(t, vcpu, copy ? code_address(t, copy) : target, regs, sregs);
    return TRACE_RUN_ON;
}
