#ifndef REPLAY_CORE_FILE_H
#define REPLAY_CORE_FILE_H

#include "recording/cpu_state.h"
#include "replay/core_kernel.h"
#include "replay/core_output.h"

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

/* Write it to an empty file. Pages that are zero take no room. */
int core_file_write(const struct core *core, struct core_output *out, struct err *e);

#endif
