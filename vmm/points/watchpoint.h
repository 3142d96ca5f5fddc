#ifndef VMM_POINTS_WATCHPOINT_H
#define VMM_POINTS_WATCHPOINT_H

#include "vmm/points/breakpoint.h"

/* Inside of breakpoints: watched memory (watchpoint.c). */

/* Protect the pages, if there are any and they are not. */
int watchpoints_protect(struct breakpoints *set, struct err *e);
/* Take what is there now as what was there before, and forget hits. */
void watchpoints_see(struct breakpoints *set);
/* Set `hit` in those that changed since they were seen last. */
bool watchpoints_changed(struct breakpoints *set);
/* Whether breakpoints_complete() has changed any; */
bool watchpoints_stored(const struct breakpoints *set);
/* then the stop is where what is pending has been taken, as for who steps. */
enum breakpoint_stop watchpoints_stop_here(struct breakpoints *set, struct vcpu_exit *exit,
                                           struct err *e);
/* Where an exit is a write to a page of theirs that KVM does for the guest: do it. 1: done; 0: it
 * is another exit; -1: that failed. */
int watchpoints_do_write(struct breakpoints *set, const struct vcpu_exit *exit, struct err *e);
/* After EXIT_PROTECTED: do the instruction in software, if it is a MOV, as most are that write to a
 * page again and again. False: it is none, or does more than to store. */
bool watchpoints_store(struct breakpoints *set);
/* After EXIT_PROTECTED, with no breakpoint and no trace in place: do what writes there. */
enum breakpoint_stop watchpoints_let_write(struct breakpoints *set, struct vcpu_exit *exit,
                                           struct err *e);

#endif
