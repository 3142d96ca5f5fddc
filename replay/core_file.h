#ifndef REPLAY_CORE_FILE_H
#define REPLAY_CORE_FILE_H

#include "replay/core.h"
#include "replay/core_output.h"

/*
 * A core of a machine, an ELF file as kdump's /proc/vmcore is one:
 *
 *     header | program headers | notes | all of guest memory, from a page boundary on
 *
 * Notes: of each CPU its registers, and as QEMU has them (CR3, segments); VMCOREINFO. A program
 * header for each range of guest memory has its physical addresses and those in the kernel's direct
 * map. More of them, for the kernel's image and what else it has mapped, are of the same bytes.
 *
 * It is written to an empty file, in which pages that are zero take no room.
 */
int core_file_write(const struct core *core, struct core_output *out, struct err *e);

#endif
