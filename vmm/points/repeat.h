#ifndef VMM_POINTS_REPEAT_H
#define VMM_POINTS_REPEAT_H

#include "mmu/insn.h"
#include "vmm/points/breakpoint.h"

/*
 * String instructions with a REP prefix. One is a single pass for a breakpoint on it, but each of
 * its iterations is a step: a place between two of them is found again only by going through it,
 * which is done in software where it can be, as a real step of each takes as long as thousands.
 */

/* Whether it is one, MOVS, STOS and the like, or INS or OUTS. */
bool repeat_is(const struct insn *insn);

/*
 * Do iterations of the REP (MOVS, STOS, LODS, CMPS, SCAS) between two of whose iterations the vCPU
 * stands, at most so many and what takes some ms, and not the last one: who wants more of them asks
 * again, and can be kicked in between. None of them can fault, or changes a page table.
 * It ends behind one that changes memory which one of `watched` (a list, NULL: nothing) watches.
 * Returns how many were done; 0: the next one is the CPU's to do.
 */
uint64_t repeat_run(struct vcpu *vcpu, const struct watchpoint *watched, uint64_t most);

/* Whether the vCPU stands between two iterations of a REP, of which the one before wrote to this
 * GPA. */
bool repeat_has_written(struct vcpu *vcpu, uint64_t gpa);

#endif
