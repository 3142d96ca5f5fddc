#ifndef BOOT_DISKIMAGE_DISKIMAGE_TABLE_H
#define BOOT_DISKIMAGE_DISKIMAGE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "devices/disk/disk.h"

/* Where a file system may be in a disk image, in bytes, and its name as a virtio-blk disk. */
struct disk_partition {
    char device[16]; /* "vda" for the whole disk, "vda5" */
    uint64_t offset, size;
};

/*
 * List what a disk holds: its partitions by MBR (with logical partitions) or
 * GPT (UEFI 2.10, chapter 5; damaged checksums are forgiven), numbered as Linux does. 512-byte
 * sectors. Partitions that leave the image are left out. Returns how many of at most max were
 * written.
 */
size_t disk_partitions(struct disk *disk, struct disk_partition *out, size_t max);

#endif
