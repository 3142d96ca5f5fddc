#ifndef BOOT_DISKIMAGE_DISKIMAGE_FSTEST_H
#define BOOT_DISKIMAGE_DISKIMAGE_FSTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "boot/diskimage/diskimage_volume.h"
#include "devices/disk/disk.h"

/*
 * File systems that we do not read ourselves, as GRUB's own drivers read them: grub-fstest, one of
 * its tools, which knows FAT, XFS, btrfs and many more, also in logical volumes and on RAID. It is
 * run in a cage (cage.h), once for each question.
 */
struct fstest;

/* NULL with *e: it is not installed. Free with fstest_free(), behind the volumes. */
struct fstest *fstest_new(struct disk *disk, struct err *e);
void fstest_free(struct fstest *t);

/*
 * The disk's file systems, those of at most `max` devices, by their names; how many were written.
 * 0 with *e when the tool could not be run or says nothing; others are as many as there are.
 */
size_t fstest_volumes(struct fstest *t, struct volume *out, size_t max, struct err *e);

/* ---- what it says, for tests ---- */

/* A device of its list, with the file system that is on it. */
struct fstest_device {
    char grub[VOLUME_DEVICE_MAX];   /* its name for GRUB: "loop0,gpt2", "lvm/system-root" */
    char device[VOLUME_DEVICE_MAX]; /* and for Linux: "vda2", "mapper/system-root" */
    char uuid[37];
};

/* One line of `ls -l`; false when there is no file system of the disk in it. */
bool fstest_parse_device(const char *line, size_t len, struct fstest_device *out);

#endif
