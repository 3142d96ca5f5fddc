#ifndef VMM_MACHINE_CODE_WATCH_H
#define VMM_MACHINE_CODE_WATCH_H

#include "vmm/machine/machine.h"

/*
 * The net below kernel_code.h: kernel code that came into being in another way than was foreseen (a
 * kernel started by kexec, a compiler in the kernel, modules of a kernel without symbols) is found
 * while it is recorded, not by a replay. Every now and then, at a sync point, all pages that the
 * kernel could execute in the highest 2 GiB, where Linux has its code, are looked at: those that
 * were not mapped there before, and some of the others. What is found is replaced then, which may
 * be too late: machine_doubt().
 */
struct code_watch;

/* NULL: out of memory. */
struct code_watch *code_watch_create(void);
void code_watch_destroy(struct code_watch *w);

/* Whether it is time to look, `now` being the host's. */
bool code_watch_is_due(const struct machine *m, uint64_t now);
/* Look, where the vCPU stands at a sync point and no other one runs. */
void code_watch_look(struct machine *m, struct vcpu *vcpu, uint64_t now);

#endif
