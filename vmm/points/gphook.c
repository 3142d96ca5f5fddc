#include "vmm/points/gphook.h"

#include <assert.h>
#include <string.h>

#include "base/x86.h"
#include "mmu/insn.h"
#include "mmu/walk.h"

/* In a 64-bit TSS (AMD64 APM 2, section 12.2.5). */
#define TSS_RSP0 4u
/* How far around the guest's #GP handler the HLT and IRETQ bytes are looked for. */
#define SEARCH_PAGES 512

bool gate_read(const struct guest_memory *m, const struct kvm_sregs *sregs, unsigned vector,
               struct gate *gate)
{
    const uint64_t at = (uint64_t)vector * GATE_BYTES;
    uint64_t half[2];

    if (sregs->idt.limit < at + GATE_BYTES - 1 ||
        walk_read(m, sregs->cr3, sregs->idt.base + at, half, GATE_BYTES) != GATE_BYTES)
        return false;
    gate->handler = (half[0] & 0xffff) | (half[0] >> 32 & 0xffff0000) | half[1] << 32;
    return half[0] >> 47 & 1; /* present */
}

void gate_redirect(uint8_t *gate, uint64_t handler)
{
    uint64_t low, high = handler >> 32;

    memcpy(&low, gate, 8);
    low = (low & 0x0000ffffffff0000) | (handler & 0xffff) | (handler & 0xffff0000) << 32;
    memcpy(gate, &low, 8);
    memcpy(gate + 8, &high, 8);
}

/* A byte string in mapped, executable kernel memory, searched page by page from `around` on and
 * then before it. Strings that straddle pages are not found, which does not matter. */
static uint64_t find_code(const struct guest_memory *m, uint64_t cr3, uint64_t around,
                          const uint8_t *bytes, size_t len)
{
    uint64_t page = around & ~(uint64_t)(PAGE_BYTES - 1);

    for (unsigned i = 0; i < 2 * SEARCH_PAGES; i++) {
        uint64_t va = i < SEARCH_PAGES ? page + (uint64_t)i * PAGE_BYTES
                                       : page - (uint64_t)(i - SEARCH_PAGES + 1) * PAGE_BYTES;
        struct translation t;
        if (!walk(m, cr3, va, &t) || !t.executable)
            continue;
        const uint8_t *code = guest_memory_at(m, t.gpa, PAGE_BYTES);
        const uint8_t *at = code ? memmem(code, PAGE_BYTES, bytes, len) : NULL;
        if (at)
            return va + (uint64_t)(at - code);
    }
    return 0;
}

static bool user_space_exists(const struct guest_memory *m, uint64_t cr3)
{
    const uint64_t *root = guest_memory_at(m, cr3 & PTE_ADDRESS, PAGE_BYTES);

    for (unsigned i = 0; root && i < 256; i++)
        if ((root[i] & (PTE_PRESENT | PTE_USER)) == (PTE_PRESENT | PTE_USER))
            return true;
    return false;
}

static bool is_hlt(const struct guest_memory *m, uint64_t cr3, uint64_t va)
{
    uint8_t byte;

    return walk_read(m, cr3, va, &byte, 1) == 1 && byte == HLT;
}

bool gphook_prepare(struct vcpu *vcpu, struct gp_hook *hook, uint64_t *gate_gpa, uint8_t gate[16])
{
    static const uint8_t hlt[] = {HLT}, iretq[] = {0x48, 0xcf};
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_sregs s;
    struct translation t;
    struct gate gp, ud;

    vcpu_get_sregs(vcpu, &s);
    if (!(s.cr0 & CR0_PG) || !(s.efer & EFER_LMA) || !user_space_exists(m, s.cr3))
        return false;
    uint64_t gate_va = s.idt.base + GATE_BYTES * VECTOR_GP;
    if (!gate_read(m, &s, VECTOR_GP, &gp) || !gate_read(m, &s, VECTOR_UD, &ud) ||
        walk_read(m, s.cr3, gate_va, gate, GATE_BYTES) != GATE_BYTES ||
        !walk(m, s.cr3, gate_va, &t))
        return false;
    *gate_gpa = t.gpa;
    hook->handler = gp.handler;
    hook->ud = ud.handler;
    hook->rip = find_code(m, s.cr3, hook->handler, hlt, sizeof hlt);
    hook->iretq = find_code(m, s.cr3, hook->handler, iretq, sizeof iretq);
    /* A gate that leads to a HLT is one that dittovm has redirected, in a machine whose memory was
     * written to its disk (hibernation): what its handler was is not known. */
    if (!hook->rip || !hook->iretq || is_hlt(m, s.cr3, hook->handler))
        return false;
    gate_redirect(gate, hook->rip);
    return true;
}

/* True when a HLT exit is really the hook; *frame is then what the CPU pushed. */
static bool is_hit(struct vcpu *vcpu, const struct gp_hook *hook, const struct vcpu_exit *exit,
                   struct exception_frame *frame)
{
    if (!hook->rip || exit->kind != EXIT_HLT || vcpu->regs->rip != hook->rip + 1)
        return false;
    /* A HLT that the guest really executes there would not have a frame of ours below it. The CPU
     * aligns the stack before it pushes one, so it does not straddle a page. */
    return vcpu->regs->rsp % 16 == 0 &&
           vcpu_read(vcpu, vcpu->regs->rsp, frame, sizeof *frame) == sizeof *frame &&
           !(frame->cs >> 16) && !(frame->ss >> 16) && (frame->rflags & 2);
}

/* What loading a selector loads from the GDT or LDT (AMD64 APM 2, sections 4.7 and 4.8); unusable
 * when there is nothing. */
static struct kvm_segment segment_of(const struct vm *vm, const struct kvm_sregs *s,
                                     uint64_t selector)
{
    struct kvm_segment segment = {.selector = (uint16_t)selector, .unusable = 1};
    const bool local = selector & 4;
    const uint64_t at = selector & 0xfff8, limit = local ? s->ldt.limit : s->gdt.limit;
    uint64_t d;

    if ((!at && !local) || (local && s->ldt.unusable) || at + 7 > limit ||
        walk_read_by(vm_tables(vm), &vm->memory, s->cr3, (local ? s->ldt.base : s->gdt.base) + at,
                     &d, 8) != 8)
        return segment;
    segment.base = (d >> 16 & 0xffffff) | (d >> 56) << 24;
    segment.limit = (uint32_t)((d & 0xffff) | (d >> 32 & 0xf0000));
    segment.type = d >> 40 & 15;
    segment.s = d >> 44 & 1;
    segment.dpl = d >> 45 & 3;
    segment.present = d >> 47 & 1;
    segment.avl = d >> 52 & 1;
    segment.l = d >> 53 & 1;
    segment.db = d >> 54 & 1;
    segment.g = d >> 55 & 1;
    segment.unusable = 0;
    if (segment.g)
        segment.limit = segment.limit << 12 | 0xfff;
    return segment;
}

/* The segment of a selector in a frame: the one that is known, if it is that one's. Other code may
 * run at the same linear address. */
static struct kvm_segment loaded(const struct vcpu *vcpu, const struct kvm_sregs *s,
                                 const struct kvm_segment *known, uint64_t selector)
{
    return known && known->selector == selector ? *known : segment_of(vcpu->vm, s, selector);
}

bool gphook_breakpoint(struct vcpu *vcpu, const struct gp_hook *hook, const struct vcpu_exit *exit,
                       unsigned cpl, const struct kvm_segment *cs, const struct kvm_segment *ss,
                       struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    struct exception_frame frame;

    if (exit->kind != EXIT_HLT)
        return false;
    *regs = *vcpu->regs;
    vcpu_get_sregs(vcpu, sregs);
    if (cpl == 0) {
        regs->rip--;
        return sregs->ss.dpl == 0 && vcpu->regs->rip != hook->rip + 1;
    }
    if (!is_hit(vcpu, hook, exit, &frame) || (frame.cs & 3) != 3)
        return false;
    regs->rip = frame.rip;
    regs->rsp = frame.rsp;
    regs->rflags = frame.rflags & ~RFLAGS_RF;
    sregs->cs = loaded(vcpu, sregs, cs, frame.cs);
    sregs->ss = loaded(vcpu, sregs, ss, frame.ss);
    return true;
}

/* *len: of an RDTSC. */
static enum trap_kind classify(struct vcpu *vcpu, const struct exception_frame *frame,
                               unsigned *len)
{
    uint8_t code[INSN_MAX];
    struct kvm_sregs s;
    size_t at;

    vcpu_get_sregs(vcpu, &s);
    const struct kvm_segment cs = segment_of(vcpu->vm, &s, frame->cs);
    size_t n =
        vcpu_read(vcpu, cs.unusable ? frame->rip : linear_rip(frame->rip, &cs), code, sizeof code);

    /* Where the guest itself wants RDTSC to fault, it does. */
    if ((vcpu->owns_tsd && vcpu->guest_tsd) || (frame->cs & 3) != 3 || frame->error)
        return TRAP_GUEST;
    at = vcpu->bare_rdtsc ? 0 : prefixes(code, n, cs.l);
    *len = (unsigned)at + 2;
    if (n >= at + 2 && code[at] == 0x0f && code[at + 1] == 0x31)
        return TRAP_RDTSC;
    if (n >= at + 3 && code[at] == 0x0f && code[at + 1] == 0x01 && code[at + 2] == 0xf9)
        return TRAP_UD;
    return TRAP_GUEST;
}

void gphook_arrive(struct vcpu *vcpu, const struct gp_hook *hook, struct vcpu_exit *exit,
                   struct trap *trap)
{
    struct kvm_sregs s;
    struct translation t;

    if (!is_hit(vcpu, hook, exit, &trap->frame))
        return;
    exit->kind = EXIT_TRAP;
    trap->kind = classify(vcpu, &trap->frame, &trap->len);
    trap->hook = *hook;
    vcpu_get_sregs(vcpu, &s);
    trap->rip_gpa = walk(vm_tables(vcpu->vm), s.cr3, vcpu->regs->rsp + 8, &t) ? t.gpa : UINT64_MAX;
}

static uint64_t page_of(const struct guest_memory *m, const void *at)
{
    return (uint64_t)((const uint8_t *)at - m->host) / PAGE_BYTES;
}

/* Where vCPUs run at the same time, one that has waited for its turn may read this page only by
 * now, as others do at this moment. */
static bool may_write(const struct vm *vm, uint64_t page)
{
    return !vm->ownership || vm->memory.readable[page] == ACCESS_WRITE;
}

void gphook_finish(struct vcpu *vcpu, const struct trap *trap, uint64_t tsc)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    struct kvm_regs regs = *vcpu->regs;
    uint64_t *saved_rip;

    switch (trap->kind) {
    case TRAP_GUEST:
        regs.rip = trap->hook.handler;
        break;
    case TRAP_UD: /* #UD pushes no error code */
        regs.rsp += 8;
        regs.rip = trap->hook.ud;
        break;
    case TRAP_RDTSC:
        saved_rip = guest_memory_at(m, trap->rip_gpa, 8);
        /* Else it executes the instruction once more: other vCPUs have the page. */
        if (saved_rip && *saved_rip == trap->frame.rip &&
            may_write(vcpu->vm, page_of(m, saved_rip))) {
            *saved_rip = trap->frame.rip + trap->len;
            guest_memory_mark(m, saved_rip, sizeof *saved_rip);
        }
        regs.rax = (uint32_t)tsc;
        regs.rdx = tsc >> 32;
        regs.rsp += 8; /* the error code */
        regs.rip = trap->hook.iretq;
        break;
    }
    vcpu_set_regs(vcpu, &regs);
}

/* Where the CPU begins to push at an exception from CPL3. */
static bool stack_top(const struct guest_memory *m, const struct kvm_sregs *s, uint64_t *top)
{
    uint64_t rsp0;

    if (walk_read(m, s->cr3, s->tr.base + TSS_RSP0, &rsp0, 8) != 8)
        return false;
    *top = rsp0 & ~15ull; /* long mode aligns the stack before it pushes */
    return true;
}

static bool owns_alone(const struct vm *vm, uint64_t page)
{
    return may_write(vm, page) && !(vm->ownership && ownership_is_shared(vm->ownership, page));
}

uint64_t gphook_user_frame_gpa(struct vcpu *vcpu)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    const struct guest_memory *all = vm_tables(vcpu->vm);
    struct kvm_sregs s;
    struct translation t;
    uint64_t top;

    vcpu_get_sregs(vcpu, &s);
    if (!stack_top(all, &s, &top) || !walk(all, s.cr3, top - sizeof(struct exception_frame), &t))
        return 0;
    const uint8_t *frame = guest_memory_at(m, t.gpa, sizeof(struct exception_frame));
    if (!frame || !owns_alone(vcpu->vm, page_of(m, frame)))
        return 0;
    /* A frame that straddles a page would need two addresses; no kernel does that. */
    if ((t.gpa & (PAGE_BYTES - 1)) + sizeof(struct exception_frame) > PAGE_BYTES)
        return 0;
    return t.gpa;
}

/* The pages that hold these bytes are used. */
static void add_pages(const struct guest_memory *m, uint64_t cr3, uint64_t va, uint64_t len,
                      enum page_access access, struct page_fault out[GPHOOK_PAGES], unsigned *count)
{
    struct translation t;

    const uint64_t pages = ((va & (PAGE_BYTES - 1)) + len + PAGE_BYTES - 1) / PAGE_BYTES;

    for (uint64_t i = 0; i < pages; i++) {
        const uint8_t *to =
            walk(m, cr3, va + i * PAGE_BYTES, &t) ? guest_memory_at(m, t.gpa, 1) : NULL;
        if (to && *count < GPHOOK_PAGES)
            out[(*count)++] = (struct page_fault){page_of(m, to), access};
    }
}

unsigned gphook_pages(struct vcpu *vcpu, const struct gp_hook *hook,
                      struct page_fault out[GPHOOK_PAGES])
{
    const struct guest_memory *m = &vcpu->vm->whole->memory;
    struct kvm_sregs s;
    uint64_t top;
    unsigned count = 0;

    vcpu_get_sregs(vcpu, &s);
    if (stack_top(m, &s, &top))
        add_pages(m, s.cr3, top - sizeof(struct exception_frame), sizeof(struct exception_frame),
                  ACCESS_WRITE, out, &count);
    add_pages(m, s.cr3, s.tr.base + TSS_RSP0, sizeof top, ACCESS_READ, out, &count);
    add_pages(m, s.cr3, s.idt.base + VECTOR_GP * GATE_BYTES, GATE_BYTES, ACCESS_READ, out, &count);
    add_pages(m, s.cr3, hook->rip, 1, ACCESS_READ, out, &count);
    add_pages(m, s.cr3, s.gdt.base, (uint64_t)s.gdt.limit + 1, ACCESS_READ, out, &count);
    return count;
}

void gphook_clear_user_frame(struct vcpu *vcpu)
{
    const struct guest_memory *m = &vcpu->vm->memory;
    const uint64_t gpa = gphook_user_frame_gpa(vcpu);
    uint8_t *frame = gpa ? guest_memory_at(m, gpa, sizeof(struct exception_frame)) : NULL;

    if (frame)
        memset(frame, 0, sizeof(struct exception_frame));
}
