#ifndef VMM_CLOCK_H
#define VMM_CLOCK_H

#include "recorder/event.h"
#include "vmm/gphook.h"
#include "vmm/vcpu.h"

/*
 * How a vCPU is stopped at an arbitrary instruction, and brought to the same instruction again:
 * forced points (DESIGN: execution points). One table of operations a backend.
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
    LAND_STOPPED, /* *interrupted was set; the vCPU is nowhere in particular */
    LAND_FAILED,
};

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

/* What one landing cost, for reports. */
struct landing_stats {
    uint64_t landings, exits, passes_in_guest;
};

/* What choosing needs of the machine. */
struct clock_host {
    const struct gp_hook *hook;
    struct stable_code stable;
    void (*kick_after)(void *opaque, uint64_t ns); /* have vcpu_run() return EXIT_KICK then */
    void *opaque;
    uint64_t wait_ns; /* how long working kernel code may be let run on to a rare place */
    bool hurry;       /* a place that replay finds at some cost is better than none */
};

struct clock_ops {
    const char *name;
    /* Recording: the vCPU was kicked and can take an interrupt here. Choose a point here or a few
     * instructions on. */
    enum clock_choice (*choose)(struct vcpu *vcpu, const struct clock_host *host,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e);
    /* Replay: run to the point. */
    enum clock_landing (*land)(struct vcpu *vcpu, const struct gp_hook *hook,
                               const struct landmark *landmark, struct vcpu_exit *exit,
                               struct landing_stats *stats, const volatile bool *interrupted,
                               struct err *e);
};

extern const struct clock_ops clock_landmark;

#endif
