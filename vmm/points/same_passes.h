#ifndef VMM_POINTS_SAME_PASSES_H
#define VMM_POINTS_SAME_PASSES_H

#include "vmm/points/clock.h"
#include "vmm/points/written.h"

/*
 * A loop whose progress shows only in memory that its code does not name (of a function that it
 * calls, or behind two pointers) has passes that look all the same, or the same every few passes,
 * and replay would look at all of them from outside the guest. So recording looks at one pass of
 * the loop: which words it changes, if any. A loop that changes nothing waits for another CPU.
 */
struct loop_pass {
    bool waits; /* it was followed, and left registers and memory as they were */
    unsigned changed;
    uint64_t changed_va[WRITTEN_CHANGED]; /* linear addresses of 64-bit words */
};

/*
 * c's vCPU stands at the point that l describes. CLOCK_CHOSEN: it stands at a later pass of the
 * same instruction, and *pass is what is known of the one before, as far as it could be followed.
 * CLOCK_LATER: no next pass came soon, and it stands elsewhere. by_steps: without breakpoints, for
 * code that must not meet breakpoints.
 */
enum clock_choice same_passes_look(struct clock *c, const struct clock_host *host,
                                   const struct landmark *l, bool by_steps, struct loop_pass *pass,
                                   struct vcpu_exit *exit, struct err *e);

#endif
