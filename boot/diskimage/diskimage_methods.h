#ifndef BOOT_DISKIMAGE_DISKIMAGE_METHODS_H
#define BOOT_DISKIMAGE_DISKIMAGE_METHODS_H

#include <stdbool.h>

#include "boot/diskimage/diskimage_take.h"

/*
 * The ways to find what a volume boots. Each fills d->boot (but for the root file system) and
 * returns true when all files it names could be read; otherwise d->boot is as before.
 */
bool diskimage_try_grub(struct disk_search *d, const struct volume *v);
bool diskimage_try_extlinux(struct disk_search *d, const struct volume *v);
bool diskimage_try_entries(struct disk_search *d, const struct volume *v);
bool diskimage_try_unified(struct disk_search *d, const struct volume *v);
bool diskimage_try_newest(struct disk_search *d, const struct volume *v);

#endif
