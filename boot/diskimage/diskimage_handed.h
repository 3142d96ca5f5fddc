#ifndef BOOT_DISKIMAGE_DISKIMAGE_HANDED_H
#define BOOT_DISKIMAGE_DISKIMAGE_HANDED_H

#include "base/err.h"
#include "boot/diskimage/diskimage_boot.h"

/*
 * What was found in an image, handed by the dittovm that looked into it to the same dittovm inside
 * the emulated host, where asking grub-fstest takes half a minute: as a file, which has a name of
 * its own and is readable for this user only.
 */
#define DISKIMAGE_HANDED_MAX 64u /* of the name */
int diskimage_hand(const struct disk_boot *boot, char path[DISKIMAGE_HANDED_MAX], struct err *e);
int diskimage_take_handed(const char *path, struct disk_boot *out, struct err *e);

#endif
