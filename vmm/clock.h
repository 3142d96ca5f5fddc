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
    LAND_MISSED, /* the guest reached a sync point first: *exit */
    LAND_FAILED,
};

/* What one landing cost, for reports. */
struct landing_stats {
    uint64_t landings, exits, passes_in_guest;
};

struct clock_ops {
    const char *name;
    /* Recording: the vCPU was kicked and can take an interrupt here. Choose a point here or a few
     * instructions on. */
    enum clock_choice (*choose)(struct vcpu *vcpu, const struct gp_hook *hook,
                                struct landmark *landmark, struct vcpu_exit *exit, struct err *e);
    /* Replay: run to the point. */
    enum clock_landing (*land)(struct vcpu *vcpu, const struct gp_hook *hook,
                               const struct landmark *landmark, struct vcpu_exit *exit,
                               struct landing_stats *stats, struct err *e);
};

extern const struct clock_ops clock_landmark;

#endif
