#ifndef VMM_POINTS_WATCHPOINT_H
#define VMM_POINTS_WATCHPOINT_H

#include "vmm/points/breakpoint.h"

/* Inside of breakpoints: watched memory (watchpoint.c). */

/* Make the pages read-only, if there are any and they are not. */
int watchpoints_protect(struct breakpoints *set, struct err *e);
/* Take what is there now as what was there before, and forget hits. */
void watchpoints_see(struct breakpoints *set);
/* Set `hit` in those that changed since they were seen last. */
bool watchpoints_changed(struct breakpoints *set);
/* Whether an exit is a write to a page of theirs, to be done by vcpu_do_write(). */
bool watchpoints_is_write(const struct breakpoints *set, const struct vcpu_exit *exit);
/* KVM cannot emulate the instruction that writes there: execute it with the pages writable. */
int watchpoints_step(struct breakpoints *set, struct vcpu_exit *exit, struct err *e);

#endif
