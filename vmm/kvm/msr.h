#ifndef VMM_KVM_MSR_H
#define VMM_KVM_MSR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/x86.h"

/*
 * MSRs of the ditto-v1 CPU model. KVM handles those that are plain CPU state (syscall entry, FS/GS
 * bases, PAT); every other access exits to us through KVM's MSR filter, so that no value depends on
 * the host's CPU, kernel version or clock.
 */

/* Needs KVM_CAP_X86_USER_SPACE_MSR and KVM_CAP_X86_MSR_FILTER (Linux 5.10). */
int msr_filter_install(int vm_fd, struct err *e);

/* The value of an MSR that exits; false means the access raises #GP in the guest. The TSC is not
 * answered here: it is host time and comes through the recorder. */
bool msr_model_read(uint32_t index, uint64_t *value);
/* Whether a write to an MSR that exits is accepted (and ignored). */
bool msr_model_write(uint32_t index, uint64_t value);

#endif
