#ifndef REPLAY_CORE_TASK_H
#define REPLAY_CORE_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "mmu/memory.h"

/* Which task each CPU of the guest's Linux runs, without the kernel's types. */

struct task_symbols {
    uint64_t init_task;
    uint64_t per_cpu;     /* __per_cpu_offset */
    uint64_t current;     /* current_task, by CPU; before Linux 6.2 */
    uint64_t per_cpu_hot; /* pcpu_hot, which begins with it; later */
};

/* Its PID; false: unknown. */
bool core_task_pid(const struct guest_memory *m, uint64_t root, const struct task_symbols *s,
                   unsigned cpu, uint32_t *pid);

#endif
