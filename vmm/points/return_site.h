#ifndef VMM_POINTS_RETURN_SITE_H
#define VMM_POINTS_RETURN_SITE_H

#include "vmm/points/clock.h"

/*
 * Return addresses on the kernel's stack as places for forced points: the further out a frame, the
 * more rarely its function returns, so that replay passes the place only a few times on its way.
 */

/*
 * Recording: let the guest run on until a function on its stack returns, leaving out the `skip`
 * innermost ones. CLOCK_CHOSEN: the vCPU stands at such a place, which was not reached at once (it
 * would be reached often). CLOCK_LATER: none was reached within host->wait_ns (a quarter of it when
 * none is left out); the vCPU was kicked.
 */
enum clock_choice return_site_run(struct vcpu *vcpu, const struct clock_host *host, unsigned skip,
                                  struct vcpu_exit *exit, struct err *e);

/* Recording: let kernel code run to the instruction at va. CLOCK_CHOSEN: the vCPU stands there.
 * CLOCK_LATER: it did not get there within kick_ns, or cannot be stopped there. */
enum clock_choice return_site_run_to(struct vcpu *vcpu, const struct clock_host *host, uint64_t va,
                                     uint64_t kick_ns, struct vcpu_exit *exit, struct err *e);

/* Whether code (at va, which is mapped to gpa) was there at the last sync point already, as far as
 * can be told. */
bool code_is_stable(const struct stable_code *stable, uint64_t va, uint64_t gpa,
                    const uint8_t *code, uint64_t len);

#endif
