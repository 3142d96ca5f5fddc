#ifndef REPLAY_CORE_H
#define REPLAY_CORE_H

#include "recording/cpu_state.h"
#include "replay/core_kernel.h"

/* What a core of a machine is made from, whatever the file's format. */
struct core {
    const struct guest_memory *memory;
    const struct vcpu_state *cpus;
    unsigned cpu_count;
    const struct core_kernel *kernel;
};

#endif
