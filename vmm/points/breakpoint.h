#ifndef VMM_POINTS_BREAKPOINT_H
#define VMM_POINTS_BREAKPOINT_H

#include <stdatomic.h>

#include "vmm/points/entry_count.h"
#include "vmm/points/gphook.h"
#include "vmm/points/trace/trace.h"

/*
 * Breakpoints in the guest's code: one facility for all who want the vCPU to stop at an
 * instruction (a landing on a forced point, the search for one, a debugger), several at once.
 *
 * They are set by interchangeable means, the first that works on this host and has room:
 *
 *   hlt        a HLT byte, which exits at CPL0 and reaches us by way of the #GP hook at CPL3
 *   register   the CPU's debug registers, at most four, for what is patient, as long as a HLT must
 *              wait; nothing of the guest's changes
 *   step       every instruction is stepped (vmm/points/stepper.h)
 *
 * Nothing of them is there but while the vCPU runs: no digest, no device and no reader of memory
 * meets a byte of ours, and there is nothing to be hidden from them.
 *
 * A breakpoint may have conditions. Passes where one is false are then told apart inside the guest
 * (vmm/points/trace/trace.h) as soon as that can be done, at some ns each.
 */
#define BREAKPOINT_SAVED 16u /* bytes of code that are remembered, as far as the page goes */

struct breakpoint;
struct breakpoints;

struct breakpoint_means {
    const char *name;
    /* Whether this host has it for code at this CPL; looked up once. */
    bool (*works)(struct vm *vm, unsigned cpl);
    bool (*has_room)(const struct breakpoints *set, const struct breakpoint *b);
    /* Put it in place and take it away, around each run of the vCPU. */
    void (*arm)(struct breakpoints *set, struct breakpoint *b);
    void (*disarm)(struct breakpoints *set, struct breakpoint *b);
    /* Whether this exit is due to it. *regs and *sregs are then the state of the code there. */
    bool (*is_hit)(const struct breakpoints *set, const struct breakpoint *b,
                   const struct vcpu_exit *exit, struct kvm_regs *regs, struct kvm_sregs *sregs);
};

extern const struct breakpoint_means breakpoint_register, breakpoint_hlt, breakpoint_step;
/* For entry_of, and only for that. */
extern const struct breakpoint_means breakpoint_entry;

struct breakpoint {
    /* What the user fills in; the rest is zero. */
    uint64_t va;  /* linear address of an instruction */
    uint64_t gpa; /* of its first byte; 0: where va is mapped at the first run from which it is */
    uint64_t cr3; /* under this page table root only; 0: under any */
    unsigned cpl; /* of the code: 0 or 3 */
    bool any_cpl; /* it stops at the other one, too; cpl says from when on it is there */
    /* Not by a HLT before there is user space (the #GP hook): until then Linux reads and patches
     * its own text, where it would meet that, and user code cannot reach us. By a register then;
     * where those do not work, the breakpoint is not hit there. It is never stepped to. CPL0 code
     * in the lower half, which is not Linux's, does not wait. */
    bool patient;
    const struct kvm_segment *cs, *ss; /* that code has loaded; NULL: what the selectors say */
    /* It stops where all of these are true, if there are any, */
    const struct trace_condition *condition;
    unsigned conditions; /* at most TRACE_CONDITIONS */
    /* and where this says so. NULL: always. */
    bool (*stops)(const struct breakpoint *b, struct vcpu *vcpu, const struct kvm_regs *regs,
                  const struct kvm_sregs *sregs);
    void *opaque;
    /* Or it stops not before its instruction, a REP, but between two iterations of that, where this
     * landmark is, or where `stops` says so; NULL: it does not. */
    const struct landmark *within;
    /* Or it is no place of an instruction, but where the last entry into the kernel before this
     * landmark is counted, which is still ahead (entries_between()), or anywhere behind that; or
     * so many entries later. */
    const struct landmark *entry_of;
    unsigned entries_later;
    /* A bit for each page of guest_memory.host that may be written on the way to where it stops.
     * NULL: each may be. */
    const uint64_t *written;
    /* Also at so many passes from now on, if not 0, whatever the above say. Each takes 1 from it.
     */
    uint64_t countdown;

    uint64_t passes; /* that were looked at from outside the guest */
    bool hit;        /* the last breakpoints_run() stopped here */

    /* Inside of the facility. */
    struct breakpoint *next, *armed_before;
    const struct breakpoint_means *means;
    bool armed;
    bool found; /* gpa is where va was mapped, under this root and with this code */
    uint64_t root;
    uint8_t code[BREAKPOINT_SAVED];
    unsigned code_len;
    unsigned slot; /* debug register */
    struct entry_alarm alarm;
    uint8_t *at, saved[BREAKPOINT_SAVED];
    unsigned saved_len;
    struct breakpoint_filter *filter; /* while it has conditions */
};

/*
 * Memory that is watched: the instruction that changes it stops, behind it. Its page is read-only
 * for the guest meanwhile, and what it writes there is done by us.
 */
struct watchpoint {
    /* The user fills in, within one page: */
    uint64_t va;  /* linear address */
    uint64_t gpa; /* 0: where va is mapped when it is set */
    unsigned len;
    bool hit; /* the last breakpoints_run() stopped because of it */

    struct watchpoint *next; /* inside */
    uint64_t seen, before;   /* digests of what was there last, and before breakpoints_complete() */
    bool stored;             /* that changed it */
};

/* Those of one vCPU. */
struct breakpoints {
    struct vcpu *vcpu;
    /* The vCPU stands between two iterations of a REP: breakpoints on that were looked at when it
     * began. Kept by who runs, steps and restores the vCPU. */
    bool repeating;
    const struct gp_hook *hook;
    /* Kicks of the vCPU are passed over until this is set; NULL: the first one stops. */
    const atomic_bool *interrupted;
    uint64_t give_up_ns; /* a kick from then on, by host_now_ns(), is BREAKPOINT_LATE; 0: none is */
    void (*kicked)(void *opaque); /* called at each kick that is passed over; NULL: nobody is */
    void *kicked_opaque;
    const struct breakpoint_means *only; /* for tests: no other means */
    uint64_t exits;                      /* of the vCPU, so far */
    uint64_t most_exits; /* a run that is at so many, and meets nothing, ends; 0: none does. With
                            `interrupted` only */

    struct breakpoint *first;
    struct watchpoint *watched;
    bool protecting;            /* the pages of `watched` are read-only now */
    struct breakpoint *armed;   /* the last one that was put in place */
    struct breakpoint *traced;  /* the one whose trace is in place */
    struct breakpoint *counted; /* the one whose passes that trace counts, or NULL */
};

enum breakpoint_stop {
    BREAKPOINT_HIT,     /* the vCPU stands at a breakpoint as if none had ever been there */
    BREAKPOINT_EXIT,    /* the guest exited by itself: *exit */
    BREAKPOINT_STOPPED, /* kicked. With `interrupted`, the vCPU is nowhere in particular */
    BREAKPOINT_LATE,    /* the same: give_up_ns has come */
    BREAKPOINT_FAILED,
    BREAKPOINT_NONE, /* most_exits; inside of the facility: run on */
};

/* Find out which means this host has, in a child process: best before there are threads. */
void breakpoints_probe(struct vm *vm);

void breakpoints_init(struct breakpoints *set, struct vcpu *vcpu, const struct gp_hook *hook);

/*
 * Add one, which stays the caller's and in place until it is removed. -1: no means can set it (user
 * code, before the #GP hook is there). Removing one that was never added is fine.
 */
int breakpoints_add(struct breakpoints *set, struct breakpoint *b, struct err *e);
/* Another one at the place of this one, for a set that has not got it: to be filled in and added.
 */
struct breakpoint breakpoint_at_place_of(const struct breakpoint *b);
void breakpoints_remove(struct breakpoints *set, struct breakpoint *b);

/*
 * Run the vCPU to the next breakpoint that stops, which may be where it stands now; `hit` is then
 * set in all that stop there. Without breakpoints it is vcpu_run().
 */
enum breakpoint_stop breakpoints_run(struct breakpoints *set, struct vcpu_exit *exit,
                                     struct err *e);

/* The same for watchpoints. -1: nothing is mapped there, or too many pages are watched. */
int breakpoints_watch(struct breakpoints *set, struct watchpoint *w, struct err *e);
/* Whether that memory can be: not where each vCPU owns its pages. */
bool breakpoints_can_watch(const struct vcpu *vcpu, uint64_t gpa, unsigned len);
void breakpoints_unwatch(struct breakpoints *set, struct watchpoint *w);
/* Let the guest write everywhere again until the next run, to be stepped or looked after otherwise.
 */
int breakpoints_rest(struct breakpoints *set, struct err *e);
/* vcpu_complete(): where that has changed watched memory, the next run stops at once. */
int breakpoints_complete(struct breakpoints *set, struct err *e);
/* Whether it has, since that was asked or forgotten last; `hit` is set in what it changed. */
bool breakpoints_stored(struct breakpoints *set);
void breakpoints_forget_stores(struct breakpoints *set);
/* Whether there is anything to stop at. */
static inline bool breakpoints_any(const struct breakpoints *set)
{
    return set->first || set->watched;
}

/* As a run begins: nothing has been hit, and what is watched is as it is now. */
void breakpoints_begin(struct breakpoints *set);
/* Whether the last run stopped at one of them, or at watched memory. */
bool breakpoints_hit(const struct breakpoints *set);
bool breakpoints_watch_hit(const struct breakpoints *set);

/* Set `hit` in those that stop where a vCPU with these registers stands; returns how many. */
unsigned breakpoints_look(struct breakpoints *set, const struct kvm_regs *regs,
                          const struct kvm_sregs *sregs);

/* A breakpoint at a place that was described, and at no other pass of its instruction: l and the
 * conditions, which are filled in, must outlive it. */
struct breakpoint landmark_breakpoint(const struct landmark *l,
                                      struct trace_condition conditions[TRACE_CONDITIONS]);
/* The same for a place between two iterations of a REP. */
struct breakpoint landmark_breakpoint_within(const struct landmark *l,
                                             struct trace_condition conditions[TRACE_CONDITIONS]);

/* Where the vCPU, which is stepped by this, stands between two iterations of a REP: do some of
 * those that follow, at most so many, up to one that changes watched memory. 0: the next one is to
 * be stepped. */
struct stepper;
uint64_t breakpoints_repeat(struct breakpoints *set, struct stepper *stepper, uint64_t most);

/* ---- inside ---- */

/* Of one with entry_of: how many entries are to pass until it is hit; not positive: it is. */
int64_t breakpoint_entries_ahead(const struct breakpoints *set, const struct breakpoint *b);
/* Of breakpoint.c: whether it is one of code that has these registers; and a kick that came with an
 * exit of ours is for the run behind it. */
bool breakpoint_is_for(const struct breakpoints *set, const struct breakpoint *b,
                       const struct kvm_regs *regs, const struct kvm_sregs *sregs);
void breakpoints_keep_kick(struct breakpoints *set, bool kicked);
/* Whether give_up_ns has come. */
bool breakpoints_are_late(const struct breakpoints *set);

/* breakpoint_code.c: set b->at to where the breakpoint's code lies now; NULL: that is not known. */
void breakpoint_find_code(struct breakpoints *set, struct breakpoint *b);

/*
 * breakpoint_leave.c: leave the instruction where the vCPU stands, all of it if it is a REP.
 * BREAKPOINT_NONE: it was executed. BREAKPOINT_HIT: watched memory changed, or a place within the
 * REP is one of a breakpoint. No byte of ours is in the guest's code.
 */
enum breakpoint_stop breakpoints_leave(struct breakpoints *set, struct vcpu_exit *exit,
                                       struct err *e);
/* Whether a step has led into the #GP handler: the exception that the instruction has raised comes
 * out at the hook at once, and is to do so while no HLT of ours is at that instruction: it would be
 * taken for ours. */
bool breakpoints_at_hook(const struct breakpoints *set);
enum breakpoint_stop breakpoints_run_to_hook(struct breakpoints *set, struct vcpu_exit *exit,
                                             struct err *e);
/* Whether it would come to a place of a breakpoint within the REP where the vCPU stands. */
bool breakpoints_lead_within(const struct breakpoints *set, const struct kvm_regs *regs,
                             const struct kvm_sregs *sregs);
/* Set `hit` in those whose place within a REP this is; whether there are any. */
bool breakpoints_are_within(struct breakpoints *set);

/* ---- inside: breakpoint_filter.c ---- */

/* A pass of b was looked at, and it does not stop. True: the vCPU was brought into a trace that
 * goes on from there until its conditions are true, or set->counted (if not NULL; b or another one
 * at its place) has counted to 0. */
bool breakpoint_filter_start(struct breakpoints *set, struct breakpoint *b,
                             const struct kvm_regs *regs, const struct kvm_sregs *sregs);
/* The trace had to be left, perhaps at its site: the next pass goes without, or it would come to
 * nothing. */
void breakpoint_filter_pause(struct breakpoints *set);
/* Whether the trace in place may take another exit for more code. */
bool breakpoint_filter_may_extend(const struct breakpoints *set);
/* Whether all its conditions are true. */
bool breakpoint_conditions_hold(const struct breakpoints *set, const struct breakpoint *b,
                                const struct kvm_regs *regs, const struct kvm_sregs *sregs);
struct breakpoint_filter *breakpoint_filter_new(const struct vcpu *vcpu);

#endif
