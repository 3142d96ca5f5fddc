#ifndef BOOT_DISKIMAGE_CAGE_KEEPER_H
#define BOOT_DISKIMAGE_CAGE_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "devices/disk/disk.h"

/* Answer what a program in a cage asks by `listener` (cage_filter.h) until it ends. False: this
 * host's kernel cannot do it. */
bool cage_keep(struct disk *disk, pid_t program, int listener);

#endif
