#ifndef BOOT_DISKIMAGE_DISKIMAGE_H
#define BOOT_DISKIMAGE_DISKIMAGE_H

#include "base/err.h"
#include "boot/diskimage/diskimage_boot.h"
#include "devices/disk/disk.h"

/*
 * Look into a disk, so that `dittovm run disk.img` needs no --kernel (no partition table, MBR or
 * GPT), which is only read; path is what messages call it. In this order, on each of its file
 * systems: GRUB, extlinux and syslinux, boot loader specification entries, unified kernel images,
 * the newest kernel in /boot. ext2, ext3 and ext4 are read here. Where that is not enough,
 * grub-fstest reads all there is, if it is installed. The caller frees *out with disk_boot_free();
 * it is empty on failure.
 */
int diskimage_find_boot(struct disk *disk, const char *path, struct disk_boot *out, struct err *e);

#endif
