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
/* The same of the exit where a module has been put together, where the vCPU stands. */
void kernel_hook_module(struct machine *m, struct vcpu *vcpu);

#endif
