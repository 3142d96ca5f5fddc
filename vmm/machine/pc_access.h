#ifndef VMM_MACHINE_PC_ACCESS_H
#define VMM_MACHINE_PC_ACCESS_H

#include <assert.h>

#include "devices/bus.h"
#include "vmm/kvm/vcpu.h"

/* Whether an exit is an access to devices, and as which they know it: that CPU's. */
static inline bool exit_is_access(const struct vcpu_exit *exit)
{
    return exit->kind == EXIT_PIO_IN || exit->kind == EXIT_PIO_OUT ||
           exit->kind == EXIT_MMIO_READ || exit->kind == EXIT_MMIO_WRITE;
}

static inline struct bus_access access_of(unsigned cpu, const struct vcpu_exit *exit)
{
    assert(exit_is_access(exit));
    return (struct bus_access){
        .cpu = cpu,
        .mmio = exit->kind == EXIT_MMIO_READ || exit->kind == EXIT_MMIO_WRITE,
        .write = exit->kind == EXIT_PIO_OUT || exit->kind == EXIT_MMIO_WRITE,
        .at = exit->at,
        .size = exit->size,
        .count = exit->count,
        .data = exit->data,
    };
}

#endif
