#ifndef VMM_MACHINE_KERNEL_HOOKS_H
#define VMM_MACHINE_KERNEL_HOOKS_H

#include "vmm/machine/machine.h"

/* Where the guest's kernel tells us something: calls in its code that were led over an OUT to a
 * port of ours (base/hidden_ports.h, boot/kernel_code.h). */

/* Whether this exit is such a call. */
bool kernel_hook_exit(const struct machine *m, const struct vcpu *vcpu,
                      const struct vcpu_exit *exit);
/* Do what it is for: it writes to the guest's memory, like a device. */
void kernel_hook_serve(struct machine *m, struct vcpu *vcpu, const struct vcpu_exit *exit);
/* The same of a machine that goes on from a sync point, behind which all that comes is still to be
 * done: of a module that has been put together. (Nobody goes on from a kexec.) */
void kernel_hook_go_on(struct machine *m, struct vcpu *vcpu, const struct sync_point *from);

#endif
