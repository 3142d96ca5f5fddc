#ifndef BOOT_DISKIMAGE_DISKIMAGE_KIND_H
#define BOOT_DISKIMAGE_DISKIMAGE_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/disk/disk.h"

/*
 * What lies at an offset of an image where no ext file system does, by its signature: "btrfs",
 * "LVM", ...; "unknown" where there is none that is known.
 */
const char *disk_kind(struct disk *disk, uint64_t offset);
/* Whether grub-fstest may find a file system there (diskimage_fstest.h) that we cannot read. */
bool disk_kind_is_foreign(const char *kind);

#endif
