#ifndef BOOT_DISKIMAGE_DISKIMAGE_METHODS_H
#define BOOT_DISKIMAGE_DISKIMAGE_METHODS_H

#include <stdbool.h>
#include <stddef.h>

#include "boot/diskimage/diskimage.h"
#include "boot/diskimage/diskimage_table.h"

#define PARTITIONS_MAX 128u

struct ext_fs;

/* A partition with a file system that can be read. */
struct volume {
    struct disk_partition part;
    struct ext_fs *fs;
};

struct disk_search {
    struct volume volumes[PARTITIONS_MAX];
    size_t count;
    uint32_t reads_left; /* of all of them together */
    struct disk_boot *boot;
};

/*
 * The ways to find what a volume boots. Each fills d->boot (but for the root file system) and
 * returns true when all files it names could be read; otherwise d->boot is as before.
 */
bool diskimage_try_grub(struct disk_search *d, const struct volume *v);
bool diskimage_try_extlinux(struct disk_search *d, const struct volume *v);
bool diskimage_try_entries(struct disk_search *d, const struct volume *v);
bool diskimage_try_newest(struct disk_search *d, const struct volume *v);

#endif
