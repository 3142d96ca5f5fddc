#ifndef VMM_POINTS_TRACE_TRACE_H
#define VMM_POINTS_TRACE_TRACE_H

#include "vmm/kvm/vcpu.h"
#include "vmm/points/gphook.h"

/*
 * The in-guest filter: passes of a breakpoint that cannot be the one looked for are told apart
 * inside the guest, at some ns each, instead of by an exit of many µs.
 *
 * The code around the breakpoint is copied, run by run and as the guest gets there, into pages of
 * ours that are mapped for the time being (a trace), where the guest maps nothing. In the copy, the
 * breakpoint is a piece of code that compares registers and memory words with their wanted values,
 * changes nothing, and executes HLT when all are equal. The guest's own code keeps its one-byte
 * breakpoint, which catches it when it leaves the trace (at a system call, an exception, an
 * instruction that is not copied) and comes back. Of user code that left for an instruction only, a
 * handler of #GP brings it back into the trace (vmm/points/trace/trace_handler.c), without an exit.
 *
 * The guest must not notice: calls push the original return address, RIP-relative operands are
 * adjusted, user code that may change checks itself, and every way into the guest's kernel
 * is trapped while a trace is in place, so that an exception frame shows the original RIP and the
 * kernel never sees the mapping. Nothing here is part of guest RAM or of any digest. No interrupt
 * is ever injected while a trace is in place.
 *
 * 32- and 16-bit code is not copied: there, the comparison is in a handler of #GP
 * (vmm/points/trace/trace_handler.c): slower, and for jumps of user code only.
 */
#define TRACE_CONDITIONS 32u

/* One comparison: a general register or RFLAGS, or the 64-bit word at a linear address. */
struct trace_condition {
    bool memory;
    unsigned reg; /* index in struct kvm_regs; not that of RIP */
    uint64_t va, value;
};

/*
 * Where a trace stops. The first condition should be the one that is most rarely true: it alone is
 * looked at in most passes. With a countdown (not 0; it must outlive the trace) each pass takes 1
 * from it, and the one that makes it 0 stops, too; there may then be no conditions.
 */
struct trace_goal {
    const struct trace_condition *condition;
    unsigned conditions; /* at most TRACE_CONDITIONS */
    uint64_t *countdown; /* NULL: passes are not counted */
    /* As in struct breakpoint: user code in such a page checks itself. */
    const uint64_t *written;
    /* Whether the caller has a HLT on the site while the trace is in place, or a debug register. */
    bool hlt_on_site;
};

struct trace;

/* What an exit was. */
enum trace_verdict {
    TRACE_FAILED = -1,
    TRACE_OTHER,  /* not the trace's business */
    TRACE_RUN_ON, /* it is dealt with: run the vCPU again */
    TRACE_TRUE,   /* the code stands at the site and all conditions are true, or it counted to 0 */
};

/*
 * Bring the vCPU into the trace of the site where its code stands with these registers, behind the
 * comparison. False when no trace can be made here; then nothing has changed. No breakpoint of the
 * caller's may be in the guest's code at this moment, and at most the one on the site while the
 * trace is in place. Translations are kept for the next call. When the trace of this site is in
 * place already, it is gone on with; its conditions may change.
 */
bool trace_start(struct vcpu *vcpu, const struct gp_hook *hook, const struct kvm_regs *regs,
                 const struct kvm_sregs *sregs, const struct trace_goal *goal);

/* To be asked first after every exit while a trace is in place. On TRACE_TRUE, *regs and *sregs are
 * the state of the guest's code at the site. Where the code comes to some that is not copied yet,
 * and `extend` is false, the trace is taken away instead, and the guest's own code runs on. The
 * same at an exit of the guest's own: it comes again where that code is. */
enum trace_verdict trace_exit(struct vcpu *vcpu, const struct vcpu_exit *exit, bool extend,
                              struct kvm_regs *regs, struct kvm_sregs *sregs, struct err *e);

/* Bring the vCPU, which stands anywhere in a trace behind an instruction of the guest's, to where
 * the guest's own code is then, and take the trace away. Where that is the site, its pass is not
 * counted: the caller's breakpoint does it. */
int trace_leave(struct vcpu *vcpu, struct err *e);

/* The bytes at an address in a trace that is in place, and how many there are up to the end of what
 * is for code; NULL: it is elsewhere. */
const uint8_t *trace_code_at(const struct vm *vm, uint64_t rip, size_t *left);
bool trace_is_in_place(const struct vm *vm);

/* Take the trace away, if one is in place; where the vCPU goes on is the caller's business. */
void trace_stop(struct vcpu *vcpu);

/* Copy a page of guest memory, `from` at this GPA, as the guest knows it, where a trace in place
 * has bytes of its own in it. False, and no copy, where it has none. */
bool trace_hides(const struct vm *vm, uint64_t gpa, const uint8_t *from, uint8_t page[PAGE_BYTES]);

#endif
