#ifndef VMM_TRACE_H
#define VMM_TRACE_H

#include "vmm/gphook.h"
#include "vmm/insn.h"
#include "vmm/vcpu.h"

/*
 * The in-guest filter: passes of a breakpoint that cannot be the one looked for are told apart
 * inside the guest, at some ns each, instead of by an exit of many µs.
 *
 * The loop around the breakpoint is copied, instruction by instruction, into pages of ours that are
 * mapped near it for the time being (a trace). In the copy, the breakpoint is a piece of code that
 * compares registers or memory words with their wanted values, without touching flags or stack, and
 * executes HLT when all are equal. The guest's own code keeps its one-byte breakpoint, which
 * catches it when it leaves the trace and comes back.
 *
 * The guest must not notice: calls push the original return address, RIP-relative operands are
 * adjusted, code that user mode could write to is not copied, and every way into the guest's kernel
 * is trapped while a trace is in place, so that an exception frame shows the original RIP and the
 * kernel never sees the mapping. Nothing here is part of guest RAM or of any digest.
 */
#define TRACE_CODE_BYTES 163840u
#define TRACE_MAX_INSNS  4096u
#define TRACE_CONDITIONS 4u
#define TRACE_LEARNED    12u
#define TRACE_TRAPS      40u

/* The first trace around a site is this small; each that the guest leaves makes the next one twice
 * as large, up to TRACE_MAX_INSNS: most loops are small, and copying takes time. */
#define TRACE_FIRST_INSNS 64u

/* One comparison: a register, or the 64-bit word at a linear address. */
struct trace_condition {
    bool memory;
    unsigned reg; /* index in struct kvm_regs */
    uint64_t va, value;
};

struct trace_map {
    uint64_t original;
    uint32_t offset; /* of its copy in the trace */
};

/* A byte of the guest's kernel that is HLT while a trace is in place. */
struct trace_trap {
    uint64_t va;
    uint8_t *at, saved;
    bool error_code; /* the exception pushes one */
    bool frame;      /* it is an exception (not a system call) */
};

struct trace_filter {
    bool active;
    struct vcpu *vcpu;
    uint64_t site, base; /* base: linear address of the trace's pages */
    uint64_t cr3;
    unsigned cpl;
    uint64_t *entry; /* the guest's page-table entry that leads to them */
    struct trace_map map[TRACE_MAX_INSNS];
    unsigned map_count, map_limit;
    struct trace_trap trap[TRACE_TRAPS];
    unsigned trap_count;
    uint64_t learned[TRACE_LEARNED]; /* where traces were left to: copied first from then on */
    unsigned learned_count;
};

/*
 * Put a trace around the site in place and bring the vCPU into it. The vCPU's code stands at the
 * site with these registers; the conditions (1 to TRACE_CONDITIONS) are all false now. False when
 * no trace can be made here; then nothing has changed.
 */
bool trace_filter_start(struct trace_filter *f, struct vcpu *vcpu, const struct gp_hook *hook,
                        const struct kvm_regs *regs, const struct kvm_sregs *sregs,
                        const struct trace_condition *conditions, unsigned count);

/* Take the trace away. RIP is the caller's business (trace_filter_original). */
void trace_filter_stop(struct trace_filter *f);

/* After an exit: true when it was a way into the kernel; the trace is gone and the guest can be run
 * on as it is. */
bool trace_filter_handle(struct trace_filter *f, const struct vcpu_exit *exit);

/* The original address of the instruction that rip belongs to, in the trace or not. */
uint64_t trace_filter_original(const struct trace_filter *f, uint64_t rip);

/* ---- between trace.c and trace_build.c ---- */

/* Where the parts lie in the trace's pages. */
#define TRACE_TABLE_BYTES (3 * 4096u) /* up to three page tables of ours */
#define TRACE_DATA_OFFSET 0u          /* in the mapped part: scratch words */
#define TRACE_CODE_OFFSET 8192u       /* not in the page of the scratch words: that is slow */
#define TRACE_MAPPED      (TRACE_CODE_OFFSET + TRACE_CODE_BYTES)

/* Words of the data page. */
enum {
    TRACE_RCX = 0,
    TRACE_RDX = 1,
    TRACE_SEEN = 2,  /* the last return address that was not in the trace */
    TRACE_LEFT = 3,  /* low half of the last other place where the trace was left to */
    TRACE_WORDS = 8, /* constants from here on */
};

/* Write the trace's code and constants to `mapped` (TRACE_MAPPED bytes) for the address f->base.
 * False when the site itself cannot be copied. Fills f->map. */
bool trace_build(struct trace_filter *f, uint8_t *mapped, const struct trace_condition *conditions,
                 unsigned count);

#endif
