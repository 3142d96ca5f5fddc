#ifndef VMM_MACHINE_CREW_CREW_H
#define VMM_MACHINE_CREW_CREW_H

#include "vmm/machine/machine.h"

/*
 * `--smp crew`: the CPUs of a machine run at the same time, each on a thread of its own and in a VM
 * of its own (vmm/kvm/views.h), and own pages (mmu/ownership.h): concurrent readers or one
 * exclusive writer, as in SMP-ReVirt.
 *
 * A page changes hands only where all concerned have come to an exit: who wants it is at a fault,
 * and who has to give it up is stopped, at an exit of its own or, when none comes soon, at a forced
 * point. So nothing happens to a CPU while it runs, its next exit is a function of where it began
 * and of memory as it was then, and a recording holds the order in which runs began and nothing
 * else of the time in between (recording/event.h; replay/player_crew.c).
 *
 * Two that want the same page again and again would give it up before they have done anything with
 * it. So a page for which somebody must be stopped goes only to the CPU that has the *token*; it is
 * passed on when that has run for a quantum and another one waits: in the worst case they take
 * turns.
 *
 * One lock is held wherever anything but the guest runs: so only one CPU at a time is served, and
 * its turn is what the recording says between two EVENT_SCHEDULEs.
 */
struct crew;

/* For a machine with views. It uses SIGUSR1 of the process. */
struct crew *crew_create(struct machine *m, struct err *e);
/* NULL is fine. */
void crew_destroy(struct crew *crew);

/* machine_run() of such a machine. */
int crew_run(struct machine *m, enum end_reason *reason, struct err *e);

/* Something has happened that the machine must look at now. Async-signal-safe. */
void crew_ring(struct crew *crew);

#endif
