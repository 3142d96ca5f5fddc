#include "replay/core_task.h"

#include <stddef.h>

#include "mmu/walk.h"

/* As much of a task as is looked at, in words; it has its parent within some 3 KiB. */
#define TASK_WORDS 1024u
/* Linux gives none above (PID_MAX_LIMIT). */
#define PID_MOST 4194304u

/*
 * Where a task has its PID. Every Linux has in a row: pid, tgid (of 4 bytes each), with a stack
 * protector its canary, real_parent, parent. The first task is its own parent, and its PID is 0.
 */
static bool find_offset(const struct guest_memory *m, uint64_t root, uint64_t init_task,
                        uint64_t *offset)
{
    uint64_t word[TASK_WORDS];
    const size_t count = walk_read(m, root, init_task, word, sizeof word) / sizeof *word;

    for (size_t i = 2; i + 1 < count; i++) {
        if (word[i] != init_task || word[i + 1] != init_task)
            continue;
        if (word[i - 1] && word[i - 2])
            return false;
        *offset = sizeof *word * (word[i - 1] ? i - 2 : i - 1);
        return true;
    }
    return false;
}

bool core_task_pid(const struct guest_memory *m, uint64_t root, const struct task_symbols *s,
                   unsigned cpu, uint32_t *pid)
{
    const uint64_t current = s->per_cpu_hot ? s->per_cpu_hot : s->current;
    uint64_t base, task, offset;

    if (!s->init_task || !s->per_cpu || !current || !find_offset(m, root, s->init_task, &offset) ||
        walk_read(m, root, s->per_cpu + sizeof base * cpu, &base, sizeof base) != sizeof base ||
        walk_read(m, root, base + current, &task, sizeof task) != sizeof task ||
        walk_read(m, root, task + offset, pid, sizeof *pid) != sizeof *pid)
        return false;
    return *pid <= PID_MOST;
}
