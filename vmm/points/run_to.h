#ifndef VMM_POINTS_RUN_TO_H
#define VMM_POINTS_RUN_TO_H

#include "vmm/points/clock.h"

/*
 * Recording: let kernel code run to the instruction at va, for at most kick_ns. An instruction must
 * begin there: a HLT is put in its place meanwhile. CLOCK_CHOSEN: the vCPU stands there.
 * CLOCK_LATER: it did not get there in time and was kicked, or cannot be stopped there.
 */
enum clock_choice kernel_run_to(struct vcpu *vcpu, const struct clock_host *host, uint64_t va,
                                uint64_t kick_ns, struct vcpu_exit *exit, struct err *e);

#endif
