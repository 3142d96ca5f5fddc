#ifndef VMM_MACHINE_SCHEDULE_H
#define VMM_MACHINE_SCHEDULE_H

#include "vmm/machine/machine.h"

/*
 * Several CPUs, one at a time (--smp uni): whose turn it is. Turns change only at sync points and
 * forced points, and each change is an event of the recording; so nothing here has to be
 * deterministic, and a replay does not decide anything.
 *
 * A CPU gives its turn away when it halts; at the end of its quantum; and when it only waits for
 * another one. One that it has just sent an interrupt comes in between for a moment, since the
 * sender may wait for the answer. An interrupt that wakes one shortens the turn of the one that
 * runs.
 */
/* A machine begins, or begins anew: it is the first CPU's turn. */
void schedule_init(struct machine *m, uint64_t now);

/* Whether it could go on from here. */
bool cpu_can_run(const struct machine *m, const struct machine_cpu *cpu);

/* Who runs on from this sync point; NULL: nobody can, until something happens. */
struct machine_cpu *schedule_next(struct machine *m, uint64_t now);
/* Make it so: the beginning of its turn, if it is another one's, and what has been waiting for it
 * besides interrupts. */
int schedule_switch(struct machine *m, struct machine_cpu *next, uint64_t now, struct err *e);
/* Whether an interrupt could still wake anybody. */
bool schedule_can_wake(const struct machine *m);

/* When the turn of the CPU that runs ends; NEVER: no other one waits. */
uint64_t schedule_deadline(const struct machine *m);
/* When to look whether it only waits for one of them; NEVER as above. */
uint64_t schedule_look(const struct machine *m);
/* It was looked, and it does (then its turn ends at this point), or does not. */
void schedule_looked(struct machine *m, uint64_t now, bool waits);

#endif
