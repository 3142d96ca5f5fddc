#ifndef BOOT_DISKIMAGE_DISKIMAGE_EXT_H
#define BOOT_DISKIMAGE_DISKIMAGE_EXT_H

#include <stdbool.h>
#include <stdint.h>

#include "boot/diskimage/diskimage_table.h"
#include "boot/diskimage/diskimage_volume.h"
#include "devices/disk/disk.h"

/*
 * An ext2, ext3 or ext4 file system inside an image, read through libext2fs: by this process, so
 * that the usual image needs no other program. Everything read is bounded. Files within an inode
 * (inline_data) are not read: libext2fs trusts their sizes.
 */

/* Blocks and inodes that are read of an image, for all that is looked for: kernel and initrds have
 * far fewer. A few blocks can make a file or a directory of billions, so sizes and numbers of names
 * do not bound what reading takes. */
#define EXT_READS_MAX 2000000u

/* Open the file system of a partition of the disk, which must outlive it; false when there is none.
 * Each read is taken from *reads_left, which must outlive it, too, and may be shared with others.
 */
bool ext_volume_open(struct disk *disk, const struct disk_partition *part, uint32_t *reads_left,
                     struct volume *out);

#endif
