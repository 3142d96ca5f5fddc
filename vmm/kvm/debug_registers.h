#ifndef VMM_KVM_DEBUG_REGISTERS_H
#define VMM_KVM_DEBUG_REGISTERS_H

#include "vmm/kvm/isolated.h"
#include "vmm/kvm/vm.h"

/* Whether KVM's debug registers stop a guest at a CPL, 0 or 3: tried when it is asked for the first
 * time, by a micro-guest of its own, which takes some ms. */
bool debug_registers_work(struct vm *vm, unsigned cpl);

/* The trial, isolated. */
void probe_register_cpl0(struct probe_outcome *o);
void probe_register_cpl3(struct probe_outcome *o);

#endif
