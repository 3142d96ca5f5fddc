#ifndef VMM_POINTS_CLOCK_H
#define VMM_POINTS_CLOCK_H

#include <stdatomic.h>

#include "recording/event.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/points/gphook.h"
#include "vmm/points/written_pages.h"

/*
 * How a vCPU is stopped at an arbitrary instruction, and brought to the same instruction again:
 * forced points (ARCHITECTURE.md, "Execution points"). One table of operations a backend.
 */
enum clock_choice {
    CLOCK_CHOSEN, /* the vCPU stands at a point that can be found again; *landmark describes it */
    CLOCK_LATER,  /* no such point here: let the guest run a little and ask again */
    CLOCK_EXITED, /* the guest reached a sync point on the way; it is in *exit */
    CLOCK_FAILED,
};

enum clock_landing {
    LANDED,
    LAND_MISSED,  /* the guest reached a sync point first: *exit */
    LAND_PASSED,  /* the guest has entered its kernel more often than at the landmark */
    LAND_LATE,    /* it did not come within clock.patience; nor did a sync point */
    LAND_STOPPED, /* *interrupted was set; the vCPU is nowhere in particular */
    LAND_BREAK,   /* at one of clock->breakpoints, on the way; land() goes on from there */
    LAND_CHANGED, /* other code is at the place, and when it becomes the landmark's cannot be seen
                   */
    LAND_FAILED,
};

/* How long a landing may take. It is there for what never ends: a replay in which a program waits
 * for an interrupt that comes at a place where it will not be. The longest that was seen to its end
 * took 124 s, on a busy machine. */
#define LANDING_SECONDS 900u

/*
 * Kernel text as it was when the machine started. A breakpoint is set at the sync point before the
 * forced one, so code that was rewritten in between (Linux patches itself while it boots) is no
 * place for it: inside these ranges only code that is still as it was is chosen. That holds for the
 * kernel's own addresses; memory it has freed (its start-up code) may hold anything by now, which
 * is seen at other addresses.
 */
#define STABLE_RANGES 8
struct stable_code {
    struct {
        uint64_t va, gpa, len;
        uint8_t *bytes; /* owned */
    } range[STABLE_RANGES];
    unsigned count;
};

/* Whether code (at va, which is mapped to gpa) was there at the last sync point already, as far as
 * can be told. */
bool code_is_stable(const struct stable_code *stable, uint64_t va, uint64_t gpa,
                    const uint8_t *code, uint64_t len);

/* What a landing looked at from outside the guest. */
struct landing_passes {
    uint64_t differed[FINGERPRINT_PARTS]; /* by what differed first */
    /* Of those where it was registers, the one with the fewest others, and which it is of all. */
    uint64_t nearest, nearest_cr3, nearest_regs[REG_COUNT];
    uint32_t nearest_other; /* a bit for each register that differed; 0: only CR3 */
    /* Which page differed in the last of those where it was a page written before. */
    struct page_hint page;
};

/* What landings cost, for reports. */
struct landing_stats {
    uint64_t landings, exits;
    struct landing_passes passes; /* of the last one */
};

/* For whose sake a vCPU is to be stopped. */
enum clock_reason {
    CLOCK_FOR_ITSELF,  /* an interrupt waits for it, or the user: where it can take one */
    CLOCK_FOR_ANOTHER, /* its turn ends, another CPU wants a page, or it is an NMI that waits:
                          interrupts may be off there */
    CLOCK_IF_WAITING,  /* the same, but only if it waits for another CPU itself */
};

/* What may be tried for it, the longer it has waited: each tries what is before it, too. */
enum clock_effort {
    CLOCK_GOOD_PLACE,   /* that a replay finds at once */
    CLOCK_WAITING_LOOP, /* looking whether it is in a loop that waits for something */
    CLOCK_ANY_PLACE,    /* a place that a replay finds at some cost is better than none */
};

/* What choosing needs of the machine. */
struct clock_host {
    const struct gp_hook *hook;
    const struct entry_count *entries; /* NULL: the guest's are of no use */
    struct stable_code stable;
    void (*kick_after)(void *opaque, uint64_t ns); /* have vcpu_run() return EXIT_KICK then */
    void *opaque;
    bool watches;    /* code may run on for a moment, to see what it changes */
    bool concurrent; /* other CPUs run the same code at this moment: no byte of ours is put there */
    /* Of this stop: */
    enum clock_reason reason;
    enum clock_effort effort;
};

/* Whether a forced point may be where the vCPU stands, by what it waits for. */
static inline bool clock_can_stop(const struct vcpu *vcpu, const struct clock_host *host)
{
    return host->reason == CLOCK_FOR_ITSELF ? vcpu_interruptible(vcpu) : vcpu_is_settled(vcpu);
}

/* Until there is user space Linux reads and patches its own code (in the kernel's half of the
 * address space), where it would meet HLTs of ours. */
static inline bool clock_patches_itself(const struct vcpu *vcpu, const struct gp_hook *hook)
{
    return !hook->rip && vcpu->regs->rip >> 63;
}

struct clock;
struct breakpoints;

struct clock_ops {
    const char *name;        /* --clock, and in the recording */
    const char *description; /* for --help and doctor */
    bool only_asked_for;     /* never chosen by itself: slow, or not yet run */
    bool counts;             /* forced points carry the branches since the sync point before */
    bool needs_count;        /* land() needs that count */
    bool steps_only;         /* the guest must not run but by step() and run() */
    /* Get ready on this host; -1, with the reason, when it lacks something. NULL: nothing to do. */
    int (*open)(struct clock *c, struct err *e);
    void (*close)(struct clock *c);
    /* vcpu_run(), counting. */
    int (*run)(struct clock *c, struct vcpu_exit *exit, struct err *e);
    /* Execute one instruction (or one iteration of a REP), counting: EXIT_STEP, or the exit that it
     * caused, or EXIT_KICK when it is still to be done. */
    int (*step)(struct clock *c, struct vcpu_exit *exit, struct err *e);
    /* The vCPU stands at a sync point: count from here. NULL for a clock that does not count. */
    void (*sync)(struct clock *c);
    /* Count on from so many. NULL: clock->branches is all there is. */
    void (*restore)(struct clock *c, uint64_t branches);
    /* Recording: the vCPU was kicked, and what it is to stop for (host->reason) can happen here.
     * Choose a point here or a few instructions on. */
    enum clock_choice (*choose)(struct clock *c, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e);
    /* Replay: run to the point, from the sync point before it. */
    enum clock_landing (*land)(struct clock *c, const struct landmark *landmark,
                               struct vcpu_exit *exit, const atomic_bool *interrupted,
                               struct err *e);
};

/* A clock of one vCPU. */
struct clock {
    const struct clock_ops *ops;
    struct vcpu *vcpu;
    unsigned patience; /* how many seconds a landing may take, at least 1 */
    /* Told every second for how many a landing has lasted; NULL: nobody is. */
    void (*lasts)(void *opaque, unsigned seconds);
    void *lasts_opaque;
    const struct gp_hook *hook; /* its rip is 0 until there is one */
    bool replaying;             /* nobody asks for a count but land() */
    uint64_t branches;          /* retired since the last sync point, if ops->counts */
    struct landing_stats stats;
    struct breakpoints *breakpoints; /* that land() stops at, if it is clock_landmark's; or NULL */
    void *own;
};

extern const struct clock_ops clock_pmu, clock_landmark, clock_step;

/* All clocks, the ones to prefer first; NULL ends them. */
extern const struct clock_ops *const clock_table[];
/* By name; NULL when there is none. */
const struct clock_ops *clock_find(const char *name);
/* The value of a --clock option: *ops becomes NULL for "auto". */
int clock_option(const char *text, const struct clock_ops **ops, struct err *e);
/*
 * Open a clock; ops NULL: the first one of the table that this host has (one that is only_asked_for
 * is not). -1, with the reason, when this host lacks what it needs. vcpu and hook
 * must outlive the clock.
 */
int clock_open(struct clock *c, const struct clock_ops *ops, struct vcpu *vcpu,
               const struct gp_hook *hook, struct err *e);
/* A clock that was never opened (all zero) is fine. */
void clock_close(struct clock *c);
/* To be called at every sync point, before the guest runs on. */
void clock_sync(struct clock *c);
/* The vCPU was brought to another state, so many branches behind its sync point. */
void clock_restore(struct clock *c, uint64_t branches);

/* ---- for clocks ---- */

/* choose() for a clock that can stop anywhere: a place near the vCPU's, and what tells its passes
 * apart (vmm/points/same_passes.h), for replay with the clock `landmark`. */
enum clock_choice clock_choose_near(struct clock *c, const struct clock_host *host,
                                    struct landmark *landmark, struct vcpu_exit *exit,
                                    struct err *e);

/* land() of the clock `landmark`. */
enum clock_landing landmark_land(struct clock *c, const struct landmark *landmark,
                                 struct vcpu_exit *exit, const atomic_bool *interrupted,
                                 struct err *e);

#endif
