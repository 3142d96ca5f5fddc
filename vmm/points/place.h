#ifndef VMM_POINTS_PLACE_H
#define VMM_POINTS_PLACE_H

#include "vmm/kvm/site.h"
#include "vmm/points/clock.h"

/*
 * Where the clock `landmark` may stop a vCPU: an instruction that a replay's breakpoint can be set
 * at, at the sync point before, and that can be stepped over without leaving a trace in the guest.
 */

/* The vCPU's own place, if its instruction is at least as good as that: *l describes it then. */
bool place_here(struct vcpu *vcpu, const struct clock_host *host, enum site_quality least,
                struct landmark *l);

/*
 * The same, or one some steps on; the vCPU stands there then. The longer it steps, the less good an
 * instruction will do. CLOCK_LATER: there is none near, and it stands elsewhere.
 */
enum clock_choice place_near(struct clock *c, const struct clock_host *host,
                             struct landmark *landmark, struct vcpu_exit *exit, struct err *e);

#endif
