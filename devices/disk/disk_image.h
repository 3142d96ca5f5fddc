#ifndef DEVICES_DISK_DISK_IMAGE_H
#define DEVICES_DISK_DISK_IMAGE_H

#include <stdatomic.h>

#include "devices/disk/disk.h"

/* Making an image file of what is on a disk. */
struct disk_image_making {
    const char *format;                            /* "raw" or "qcow2" */
    bool overwrite;                                /* also where there is a file of this name */
    const atomic_int *stop;                        /* it fails as soon as this is not 0 */
    void (*progress)(void *opaque, uint64_t done); /* bytes of the disk; NULL: nobody is told */
    void *opaque;
};

/* -1 with *e where `path` cannot be made by disk_image_make(), as far as can be known before. */
int disk_image_check(const char *path, const struct disk_image_making *how, struct err *e);

/* Make the image file `path`. It has its name only once it is whole: whatever fails leaves what was
 * there. What is zero takes no room in it. *bytes: of the disk, that do. */
int disk_image_make(struct disk *disk, const char *path, const struct disk_image_making *how,
                    uint64_t *bytes, struct err *e);

#endif
