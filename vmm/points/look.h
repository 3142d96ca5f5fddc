#ifndef VMM_POINTS_LOOK_H
#define VMM_POINTS_LOOK_H

#include "vmm/points/clock.h"
#include "vmm/points/fingerprint.h"

/*
 * What a vCPU does where it was kicked: it is let run on for a moment and looked at again, which
 * may end the search for a place (CLOCK_EXITED, CLOCK_FAILED).
 */

/* Without running it: whether a PAUSE is close by, the mark of a loop that waits for something
 * (cpu_relax()). */
bool look_near_pause(struct vcpu *vcpu);

/*
 * Kernel code that only waits stays in one small loop, or near a PAUSE: passes of that are told
 * apart inside the guest (vmm/points/trace/trace.h). Kernel code that works passes any place of its
 * loops too often and in too many ways; it soon comes to a sync point by itself. CLOCK_CHOSEN: it
 * waits; CLOCK_LATER: it works.
 */
enum clock_choice look_whether_it_waits(struct clock *c, const struct clock_host *host,
                                        struct vcpu_exit *exit, struct err *e);

/*
 * What code changes of the memory that it writes, for written_changed(). CLOCK_CHOSEN: the vCPU
 * stands where a point may be chosen now; where CPUs take turns, at the same CPL.
 */
enum clock_choice look_what_changes(struct clock *c, const struct clock_host *host,
                                    struct vcpu_exit *exit, struct err *e);

#endif
