/* Putting a trace in place and taking it away: see vmm/points/trace/trace.h and
 * vmm/points/trace/trace_code.h. */
#include <assert.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "mmu/walk.h"
#include "vmm/kvm/guest_debug.h"
#include "vmm/points/annex.h"
#include "vmm/points/repeat.h"
#include "vmm/points/trace/trace_code.h"

_Static_assert(ANNEX_TRACE + TRACE_BYTES <= ANNEX_BYTES, "the trace fits in the annex");

static void trace_free(struct vm_part *part)
{
    free(part);
}

static struct trace *trace_of(struct vm *vm)
{
    struct annex *annex = annex_of(vm);

    if (vm->trace || !annex)
        return annex ? vm->trace : NULL;
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    uint8_t *const pages = annex->pages + ANNEX_TRACE;
    t->vm = vm;
    t->memory = &vm->memory;
    t->words = (uint64_t *)(pages + TRACE_WORDS_OFFSET);
    t->table = (uint32_t *)(pages + TRACE_TABLE_OFFSET);
    t->code = pages + TRACE_CODE_OFFSET;
    t->part = (struct vm_part){.free = trace_free};
    vm->trace = t;
    vm_attach(vm, &t->part);
    return t;
}

/* ---- ways into the kernel ---- */

/* A breakpoint on a way into the kernel. False when that is impossible. */
static bool add_trap(struct trace *t, uint64_t va)
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
    t->trap[t->trap_count++] = (struct trace_trap){va, to.gpa, at, *at};
    *at = HLT;
    return true;
}

/* Where system calls of user code begin: LSTAR, CSTAR, SYSENTER_EIP. The bytes are gone again when
 * the kernel runs. On AMD the last one, which 64-bit kernels do not use, has 32 bits: that may be
 * an address of the program's. */
static bool set_traps(struct trace *t, struct vcpu *vcpu)
{
    struct {
        struct kvm_msrs head;
        struct kvm_msr_entry entry[3];
    } msrs = {.head.nmsrs = 3,
              .entry = {{.index = 0xc0000082}, {.index = 0xc0000083}, {.index = 0x176}}};

    t->trap_count = 0;
    if (t->cpl == 0)
        return true;
    bool all = ioctl(vcpu->fd, KVM_GET_MSRS, &msrs) == 3;
    for (unsigned i = 0; i < 3; i++)
        if (i == 2 ? msrs.entry[i].data >> 63 : msrs.entry[i].data)
            all &= add_trap(t, msrs.entry[i].data);
    return all;
}

static void clear_traps(struct trace *t)
{
    for (unsigned i = 0; i < t->trap_count; i++)
        if (*t->trap[i].at == HLT)
            *t->trap[i].at = t->trap[i].saved;
    t->trap_count = 0;
}

bool trace_hides(const struct vm *vm, uint64_t gpa, const uint8_t *from, uint8_t page[PAGE_BYTES])
{
    const struct trace *t = vm->trace;
    bool any = false;

    for (unsigned i = 0; t && t->active && i < t->trap_count; i++) {
        const uint64_t offset = t->trap[i].gpa - gpa;
        if (offset >= PAGE_BYTES || from[offset] != HLT)
            continue;
        if (!any)
            memcpy(page, from, PAGE_BYTES);
        page[offset] = t->trap[i].saved;
        any = true;
    }
    return any;
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

/* Of an instruction that was not done, or not to its end: the register that its copy uses. */
static void restore_borrowed(const struct trace *t, const struct trace_map *entry,
                             struct kvm_regs *regs)
{
    if (entry && entry->borrowed)
        ((uint64_t *)regs)[entry->borrowed - 1] = t->words[WORD_BORROW];
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

/* Whether the guest's debugging would be misled. */
static bool is_debugged(struct vcpu *vcpu, const struct kvm_regs *regs)
{
    return (regs->rflags & RFLAGS_TF) || guest_debug_is_on(vcpu->fd);
}

/* Whether the handler can do what is at the site; t->jump is then that. Not on a stack of 16 bits:
 * IRETQ leaves the upper half of its pointer (AMD64 APM 3, IRET). */
static bool suits_handler(struct trace *t, const struct kvm_regs *regs,
                          const struct kvm_sregs *sregs)
{
    struct insn insn;

    return sregs->ss.dpl == 3 && t->hook->rip && sregs->ss.db &&
           insn_decode(t->memory, sregs, linear_rip(regs->rip, &sregs->cs), &insn) &&
           trace_jump_of(&insn, regs, &t->jump);
}

/* Find the trace of an earlier time still true, or begin a new one. */
static bool prepare(struct trace *t, const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                    bool hlt_on_site)
{
    const uint64_t cr3 = sregs->ss.dpl == 3 ? sregs->cr3 : 0;
    bool same = t->site == regs->rip && t->cpl == sregs->ss.dpl && t->cr3 == cr3 &&
                t->hlt_on_site == hlt_on_site && t->len && !t->full;

    t->root = sregs->cr3;
    if (!annex_ready(t->vm, t->root))
        return false;
    if (same && annex_is_free(t->vm, t->root, t->base - ANNEX_TRACE) && trace_is_current(t))
        return true;
    t->site = regs->rip;
    t->cpl = sregs->ss.dpl;
    t->cr3 = cr3;
    t->hlt_on_site = hlt_on_site;
    t->len = 0;
    if (!annex_find_base(t->vm, t->root, &t->base))
        return false;
    t->base += ANNEX_TRACE;
    trace_reset(t);
    return true;
}

/* Nothing is copied: forget what was. */
static bool prepare_handler(struct trace *t, const struct kvm_regs *regs,
                            const struct kvm_sregs *sregs)
{
    t->root = sregs->cr3;
    t->site = regs->rip;
    t->cpl = 3;
    t->hlt_on_site = true;
    t->len = 0;
    if (!annex_ready(t->vm, t->root) || !annex_find_base(t->vm, t->root, &t->base))
        return false;
    t->base += ANNEX_TRACE;
    return trace_handler_write(t);
}

/* Make what leads from here on, or write its comparison anew. */
static bool write_code(struct trace *t)
{
    if (t->by_handler)
        return trace_handler_write(t);
    if (!trace_copy(t, t->site) || !t->site_copied)
        return false;
    trace_emit_compare(t);
    return true;
}

/* User code that leaves the trace and comes back to the site goes on in it, at the copy. */
static void lead_back(struct trace *t)
{
    if (t->cpl == 3 && !t->by_handler)
        trace_handler_set_copy(t, t->site_copied ? code_address(t, t->quick) : 0);
}

/* The vCPU goes on behind the comparison. */
static void go_on(struct trace *t, struct vcpu *vcpu, const struct kvm_regs *regs,
                  const struct kvm_sregs *sregs)
{
    struct kvm_regs in = *regs;

    go_to(t, vcpu, t->by_handler ? trace_jump_target(&t->jump, regs) : code_address(t, t->body),
          &in, sregs);
}

bool trace_start(struct vcpu *vcpu, const struct gp_hook *hook, const struct kvm_regs *regs,
                 const struct kvm_sregs *sregs, const struct trace_goal *goal)
{
    struct trace *t = trace_of(vcpu->vm);
    struct translation site;

    assert(goal->conditions <= TRACE_CONDITIONS);
    assert(goal->countdown ? *goal->countdown != 0 : goal->conditions != 0);
    if (sregs->ss.dpl == 3 && !hook->rip) /* it is left by way of that */
        return false;
    if (!t || !walk(&vcpu->vm->memory, sregs->cr3, linear_rip(regs->rip, &sregs->cs), &site))
        return false;
    const uint8_t *site_at = guest_memory_at(t->memory, site.gpa, 1);
    /* The same place by another code segment is another RIP. */
    if (!site_at || (t->active && (t->site != regs->rip || t->root != sregs->cr3 ||
                                   t->hlt_on_site != goal->hlt_on_site)))
        return false;
    memcpy(t->condition, goal->condition, goal->conditions * sizeof *goal->condition);
    t->conditions = goal->conditions;
    t->countdown = goal->countdown;
    t->written = goal->written;
    t->words[WORD_COUNT] = goal->countdown ? *goal->countdown : 0;
    if (t->active) { /* go on in it */
        if (!write_code(t))
            return false;
        lead_back(t);
        go_on(t, vcpu, regs, sregs);
        return true;
    }
    t->hook = hook;
    t->cs = sregs->cs;
    t->ss = sregs->ss;
    t->cr2 = sregs->cr2;
    t->site_gpa = site.gpa;
    t->site_byte = *site_at;
    t->by_handler = goal->hlt_on_site && !sregs->cs.l && suits_handler(t, regs, sregs);
    if (is_debugged(vcpu, regs) || (!t->by_handler && !sregs->cs.l))
        return false;
    if (t->by_handler ? !prepare_handler(t, regs, sregs)
                      : !prepare(t, regs, sregs, goal->hlt_on_site) || !write_code(t))
        return false;
    if (!set_traps(t, vcpu)) {
        clear_traps(t);
        return false;
    }
    t->active = true;
    annex_open(annex_of(t->vm), vcpu, t->base - ANNEX_TRACE, t->cpl == 3);
    if (t->cpl == 3 && !t->by_handler)
        trace_handler_write_return(t);
    lead_back(t);
    /* A HLT in user code gets to us by way of the #GP hook. */
    annex_trap_vectors(annex_of(t->vm), vcpu, t->cpl == 3 ? VECTOR_GP : -1,
                       t->cpl == 3 ? t->base - ANNEX_TRACE + ANNEX_HANDLER : 0);
    go_on(t, vcpu, regs, sregs);
    return true;
}

void trace_stop(struct vcpu *vcpu)
{
    struct trace *t = vcpu->vm->trace;

    if (!t || !t->active)
        return;
    t->active = false;
    t->written = NULL;
    clear_traps(t);
    annex_close(annex_of(t->vm), vcpu);
}

const uint8_t *trace_code_at(const struct vm *vm, uint64_t rip, size_t *left)
{
    const struct trace *t = vm->trace;
    uint32_t offset;

    if (!t || !t->active || !in_code(t, rip, &offset))
        return NULL;
    *left = TRACE_CODE_BYTES - offset;
    return t->code + offset;
}

bool trace_is_in_place(const struct vm *vm)
{
    return vm->trace && vm->trace->active;
}

/* Our own code between two copied instructions has a few dozen at most. */
#define LEAVE_STEPS 300u

/* Whether a string instruction is what the code at this offset goes on with. Between two of its
 * iterations the vCPU stands at its very copy, behind what we put in front of that. */
static bool at_repeat(const struct trace *t, uint64_t va, uint32_t offset)
{
    const uint32_t left = TRACE_CODE_BYTES - offset;
    struct insn insn;

    return insn_decode_bytes(va, t->code + offset, left < INSN_MAX ? left : INSN_MAX, &insn) &&
           repeat_is(&insn);
}

/* What was counted inside the guest. */
static void take_count(struct trace *t)
{
    if (t->countdown)
        *t->countdown = t->by_handler ? trace_handler_count(t) : t->words[WORD_COUNT];
}

/* A HLT of the comparison's, which a step has come to: the pass is looked at outside. */
static bool is_looked_at(const struct trace *t, const struct vcpu *vcpu,
                         const struct vcpu_exit *exit)
{
    uint32_t offset;

    return exit->kind == EXIT_HLT && in_code(t, vcpu->regs->rip - 1, &offset) &&
           (offset == t->match_at || offset == t->counted_at);
}

/* Where the guest's own code stands, if it is the vCPU's place in the trace. *counted: it is at the
 * site, the pass of which the comparison has counted. */
static bool stands_at_original(struct trace *t, const struct vcpu *vcpu,
                               const struct vcpu_exit *exit, uint64_t *original, bool *counted)
{
    const uint64_t rip = vcpu->regs->rip;
    uint32_t offset, copy;

    *original = t->site;
    *counted = is_looked_at(t, vcpu, exit);
    if (*counted)
        return true;
    if (!in_code(t, rip, &offset))
        return false;
    if (offset == t->quick)
        return true;
    *counted = offset == t->body;
    if (*counted)
        return true;
    if (in_compare(t, offset))
        return false;
    if (!t->by_handler &&
        trace_extend(t, offset, false, &copy, original)) /* it is to go on there */
        return true;
    const struct trace_map *entry = trace_find(t, offset);
    if (!entry || (entry->offset != offset && entry->body != offset && !at_repeat(t, rip, offset)))
        return false;
    *original = entry->original;
    *counted = entry->original == t->site;
    return true;
}

/* Step through what is ours to where the guest's code has a place. */
static int step_out(struct trace *t, struct vcpu *vcpu, bool *counted, struct err *e)
{
    struct vcpu_exit exit = {.kind = EXIT_STEP};
    bool kicked = false;
    struct kvm_regs regs;
    uint64_t original;
    uint32_t offset;

    for (unsigned i = 0; !stands_at_original(t, vcpu, &exit, &original, counted); i++) {
        if (!in_code(t, vcpu->regs->rip, &offset))
            return 0;
        if (vcpu_run_step(vcpu, &exit, e) < 0)
            return -1;
        kicked |= exit.kind == EXIT_KICK || vcpu->kick_passed;
        if (i == LEAVE_STEPS ||
            (exit.kind != EXIT_STEP && exit.kind != EXIT_KICK && !is_looked_at(t, vcpu, &exit)))
            return err_set(e, STATUS_ERROR, "code with a breakpoint cannot be left");
    }
    regs = *vcpu->regs;
    regs.rip = original;
    vcpu_set_regs(vcpu, &regs);
    if (kicked) /* it is for who runs on */
        vcpu_kick(vcpu);
    return 0;
}

/* The caller's breakpoint at the site counts this pass, too. */
static void count_again(const struct trace *t)
{
    if (t->countdown)
        ++*t->countdown;
}

int trace_leave(struct vcpu *vcpu, struct err *e)
{
    struct trace *t = vcpu->vm->trace;
    bool counted = false;

    if (!t || !t->active)
        return 0;
    const bool wanted = vcpu->run->request_interrupt_window;
    vcpu_want_window(vcpu, false); /* it would come before each step */
    int rc = step_out(t, vcpu, &counted, e);
    vcpu_want_window(vcpu, wanted);
    take_count(t);
    if (counted)
        count_again(t);
    trace_stop(vcpu);
    return rc;
}

/* An exit of the guest's own, within a copied instruction: it is undone, and comes again where the
 * guest's own code is. */
static enum trace_verdict repeat_outside(struct trace *t, struct vcpu *vcpu, uint32_t offset,
                                         struct err *e)
{
    const struct trace_map *entry = trace_find(t, offset);
    struct kvm_regs regs = *vcpu->regs;

    if (at_repeat(t, regs.rip, offset)) { /* of many accesses no more than one */
        struct kvm_regs one = regs;
        one.rcx = 1;
        vcpu_set_regs(vcpu, &one);
    }
    if (vcpu_abandon(vcpu, e) < 0)
        return TRACE_FAILED;
    regs.rip = original(t, offset);
    restore_borrowed(t, entry, &regs);
    if (regs.rip == t->site)
        count_again(t);
    trace_stop(vcpu);
    vcpu_set_regs(vcpu, &regs);
    return TRACE_RUN_ON;
}

/* Behind a copied instruction, of which nothing but what is ours follows in the trace. */
static uint64_t behind(const struct trace *t, struct vcpu *vcpu, const struct trace_map *entry)
{
    uint8_t bytes[INSN_MAX];
    struct insn insn;
    const size_t n = vcpu_read(vcpu, entry->original, bytes, sizeof bytes);

    if (n && entry->original == t->site)
        bytes[0] = t->site_byte;
    return insn_decode_bytes(entry->original, bytes, n, &insn) ? entry->original + insn.info.length
                                                               : entry->original;
}

/* A write to a device: the instruction is done, and KVM wants nothing of the registers any more. */
static enum trace_verdict go_on_outside(struct trace *t, struct vcpu *vcpu,
                                        const struct vcpu_exit *exit, uint32_t offset)
{
    struct kvm_regs regs = *vcpu->regs;
    uint64_t rip = t->site;
    bool counted;

    if (!in_compare(t, offset) && !stands_at_original(t, vcpu, exit, &rip, &counted)) {
        const struct trace_map *entry = trace_find(t, offset);
        if (entry) {
            rip = behind(t, vcpu, entry);
            restore_borrowed(t, entry, &regs);
        }
    }
    regs.rip = rip;
    trace_stop(vcpu);
    vcpu_set_regs(vcpu, &regs);
    return TRACE_OTHER;
}

/* A fault of the comparison itself is undone; the caller compares then. */
static void undo_compare(const struct trace *t, struct vcpu *vcpu,
                         const struct exception_frame *frame, uint32_t offset,
                         struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    vcpu_get_sregs(vcpu, sregs);
    sregs->cs = t->cs;
    sregs->ss = t->ss;
    sregs->cr2 = t->cr2;
    regs->rip = t->site;
    regs->rsp = frame->rsp;
    regs->rflags = frame->rflags & ~RFLAGS_RF;
    regs->rcx = t->words[WORD_RCX];
    if (offset - t->quick >= TRACE_QUICK_BYTES)
        regs->rdx = t->words[WORD_RDX];
    vcpu_set_sregs(vcpu, sregs);
    vcpu_set_regs(vcpu, regs);
}

/* The guest comes into its kernel: there it finds everything as it would be without us. */
static enum trace_verdict trapped(struct trace *t, struct vcpu *vcpu, uint64_t handler,
                                  bool has_frame, enum trace_verdict in_kernel,
                                  struct kvm_regs *regs, struct kvm_sregs *sregs)
{
    struct exception_frame frame;
    struct translation to;
    uint32_t offset;

    *regs = *vcpu->regs;
    regs->rip = handler;
    /* The frame begins with RIP or, below it, an error code; several vectors may share a handler.
     */
    uint64_t at = regs->rsp, *rip = NULL;
    for (unsigned i = 0; i < 2 && has_frame; i++, at += 8) {
        rip = walk(t->memory, t->root, at, &to) ? guest_memory_at(t->memory, to.gpa, 8) : NULL;
        if (rip && in_code(t, *rip, &offset))
            break;
        rip = NULL;
    }
    if (rip) {
        if (in_compare(t, offset) &&
            walk_read(t->memory, t->root, at - 8, &frame, sizeof frame) == sizeof frame) {
            undo_compare(t, vcpu, &frame, offset, regs, sregs);
            return TRACE_TRUE;
        }
        *rip = original(t, offset);
        guest_memory_mark(t->memory, rip, sizeof *rip);
        restore_borrowed(t, trace_find(t, offset), regs);
        if (in_kernel == TRACE_OTHER && *rip == t->site)
            count_again(t);
    }
    trace_stop(vcpu);
    vcpu_set_regs(vcpu, regs);
    return in_kernel;
}

/* The handler in the annex has compared before it went on to the #GP hook, and a #GP leaves the
 * flags as they were. */
static void restore_flags(struct vcpu *vcpu, const struct kvm_regs *interrupted)
{
    struct kvm_regs regs = *vcpu->regs;

    regs.rflags = (regs.rflags & ~RFLAGS_STATUS) | (interrupted->rflags & RFLAGS_STATUS);
    vcpu_set_regs(vcpu, &regs);
}

/* An exit that is none of our HLTs. */
static enum trace_verdict own_exit(struct trace *t, struct vcpu *vcpu, const struct vcpu_exit *exit,
                                   struct err *e)
{
    uint32_t offset;

    if (exit->kind == EXIT_WINDOW)
        return trace_leave(vcpu, e) < 0 ? TRACE_FAILED : TRACE_RUN_ON;
    if (!in_code(t, vcpu->regs->rip, &offset))
        return TRACE_OTHER;
    if (exit->kind == EXIT_MMIO_WRITE)
        return go_on_outside(t, vcpu, exit, offset);
    if (exit->kind == EXIT_MMIO_READ || exit->kind == EXIT_RDMSR || exit->kind == EXIT_WRMSR)
        return repeat_outside(t, vcpu, offset, e);
    vcpu->regs->rip = original(t, offset); /* for the report */
    return TRACE_OTHER;
}

enum trace_verdict trace_exit(struct vcpu *vcpu, const struct vcpu_exit *exit, bool extend,
                              struct kvm_regs *regs, struct kvm_sregs *sregs, struct err *e)
{
    struct trace *t = vcpu->vm->trace;
    uint64_t target;
    uint32_t offset, copy;

    if (!t || !t->active)
        return TRACE_OTHER;
    take_count(t);
    if (exit->kind > EXIT_SYNC_LAST)
        return TRACE_OTHER;
    if (annex_trapped(annex_of(t->vm), vcpu, exit, &target))
        return trapped(t, vcpu, target, true, TRACE_RUN_ON, regs, sregs);
    for (unsigned i = 0; exit->kind == EXIT_HLT && i < t->trap_count; i++)
        if (vcpu->regs->rip == t->trap[i].va + 1)
            return trapped(t, vcpu, t->trap[i].va, false, TRACE_RUN_ON, regs, sregs);
    if (!gphook_breakpoint(vcpu, t->hook, exit, t->cpl, &t->cs, &t->ss, regs, sregs))
        return own_exit(t, vcpu, exit, e);
    if (t->cpl == 3)
        restore_flags(vcpu, regs);
    if (!in_code(t, regs->rip, &offset))
        return TRACE_OTHER;
    if (offset == t->match_at || offset == t->counted_at) {
        regs->rip = t->site;
        return TRACE_TRUE;
    }
    if (t->by_handler || !trace_extend(t, offset, extend, &copy, &target)) /* the guest's own #GP */
        return t->cpl == 3 ? trapped(t, vcpu, vcpu->regs->rip, true, TRACE_OTHER, regs, sregs)
                           : TRACE_OTHER;
    /* Outside the trace, kernel code could see which page tables are in use. */
    if (!copy && (t->cpl == 0 || !extend))
        trace_stop(vcpu);
    if (t->active)
        annex_refresh(annex_of(t->vm), vcpu);
    lead_back(t);
    go_to(t, vcpu, copy ? code_address(t, copy) : target, regs, sregs);
    return TRACE_RUN_ON;
}
