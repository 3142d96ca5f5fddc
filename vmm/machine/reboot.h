#ifndef VMM_MACHINE_REBOOT_H
#define VMM_MACHINE_REBOOT_H

#include <stdbool.h>

#include "vmm/machine/machine.h"

/*
 * A guest's reboot as its next boot (--on-reboot boot): CPUs and devices are reset, and memory is
 * what it was before the first instruction of all, with the same kernel (boot_image.h). Its disks
 * are as the guest has left them. In a recording this is facts: what memory has otherwise is
 * written as by a device, and then EVENT_BOOT has the state of the CPUs.
 */
/* Whether the machine has ended in a way that is a reboot, and boots again. */
bool machine_boots_again(const struct machine *m);
/* It does, at the sync point where it stands, at this time of the host's that has elapsed and this
 * device time (run_loop.h). -1: it cannot. */
int machine_boot_again(struct machine *m, uint64_t now, uint64_t device_ns, struct err *e);

#endif
