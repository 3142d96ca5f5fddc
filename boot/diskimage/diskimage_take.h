#ifndef BOOT_DISKIMAGE_DISKIMAGE_TAKE_H
#define BOOT_DISKIMAGE_DISKIMAGE_TAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "boot/diskimage/diskimage_boot.h"
#include "boot/diskimage/diskimage_loader.h"
#include "boot/diskimage/diskimage_volume.h"

#define VOLUMES_MAX 256u

struct disk_search {
    struct volume volumes[VOLUMES_MAX];
    size_t count;
    struct disk_boot *boot;
};

/* Make a path absolute that is relative to the directory of the configuration file. */
void diskimage_absolute(char path[LOADER_PATH_MAX], const char *config);

/* Read the files an entry of `loader` names, found in the file `config` of a volume, into d->boot;
 * false when one of them is not there. */
bool diskimage_take(struct disk_search *d, const struct volume *v, const char *loader,
                    const char *config, struct loader_entry *entry);

#endif
