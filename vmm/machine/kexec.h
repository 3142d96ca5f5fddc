#ifndef VMM_MACHINE_KEXEC_H
#define VMM_MACHINE_KEXEC_H

#include "vmm/machine/machine.h"

/*
 * A kernel that the guest starts by kexec, or when it crashes: like the first one, it has to be
 * changed before it runs (boot/kernel_code.h). So it is loaded as the first one was, by us: its
 * decompressor, which reads the time-stamp counter to choose an address, does not run.
 *
 * Two port writes of ours lead here. Each time we write to memory like a device.
 *  - KEXEC_PORT: the guest is about to call machine_kexec(), with the image that the system calls
 *    made of the new kernel. Its purgatory is the code that runs between the kernels; where that
 *    jumps to the new one, KEXEC_ENTRY_PORT is put.
 *  - KEXEC_ENTRY_PORT: the image lies where it belongs, and purgatory has found its digests right.
 *    The kernel is decompressed, changed and put where its decompressor would have put it.
 *
 * What is not understood (a purgatory of an unknown kind, a kernel that is no bzImage) runs as it
 * is, and is a doubt of the recording.
 */
void kexec_serve(struct machine *m, struct vcpu *vcpu, const struct vcpu_exit *exit);

/* Whether this exit is one of these two. */
bool kexec_exit(const struct machine *m, const struct vcpu *vcpu, const struct vcpu_exit *exit);

/* The kernel that ran is gone, and with it what was known of it: its code, and the hook among its
 * exceptions, which the next one gets when it has some. At a sync point. */
void kexec_forget_kernel(struct machine *m);

#endif
