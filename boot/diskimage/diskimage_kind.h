#ifndef BOOT_DISKIMAGE_DISKIMAGE_KIND_H
#define BOOT_DISKIMAGE_DISKIMAGE_KIND_H

#include <stdint.h>

#include "devices/disk/disk.h"

/*
 * What lies at an offset of an image where no ext file system does, by its signature: "btrfs",
 * "LVM", ...; "unknown" where there is none that is known. Only for messages.
 */
const char *disk_kind(struct disk *disk, uint64_t offset);

#endif
