#ifndef REPLAY_CORE_FILE_H
#define REPLAY_CORE_FILE_H

#include <stdatomic.h>

#include "recording/cpu_state.h"
#include "replay/core_kernel.h"

/*
 * A core of a machine, an ELF file as kdump's /proc/vmcore is one:
 *
 *     header | program headers | notes | all of guest memory, from a page boundary on
 *
 * Notes: of each CPU its registers, and as QEMU has them (CR3, segments); VMCOREINFO. A program
 * header for each range of guest memory has its physical addresses and those in the kernel's direct
 * map. More of them, for the kernel's image and what else it has mapped, are of the same bytes.
 */
struct core {
    const struct guest_memory *memory;
    const struct vcpu_state *cpus;
    unsigned cpu_count;
    const struct core_kernel *kernel;
};

struct core_making {
    const atomic_int *stop;                        /* it fails as soon as this is not 0 */
    void (*progress)(void *opaque, uint64_t done); /* bytes of memory; NULL: nobody is told */
    void *opaque;
};

/* Write it to an empty file. Pages that are zero take no room. *bytes: of memory, that do. path:
 * what errors call the file. */
int core_file_write(const struct core *core, int fd, const char *path,
                    const struct core_making *how, uint64_t *bytes, struct err *e);

#endif
