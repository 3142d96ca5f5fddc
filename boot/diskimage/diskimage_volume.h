#ifndef BOOT_DISKIMAGE_DISKIMAGE_VOLUME_H
#define BOOT_DISKIMAGE_DISKIMAGE_VOLUME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

/*
 * A file system of a disk image, whoever reads it. Paths are absolute; symbolic links are followed
 * inside the file system.
 */
struct volume_ops {
    bool (*exists)(void *fs, const char *path);
    /* Append a regular file to *out; -1 when there is none, or it is longer than limit bytes. */
    int (*read)(void *fs, const char *path, size_t limit, struct bytes *out);
    /* Call fn with each name of a directory; none when it is no directory. */
    void (*list)(void *fs, const char *path, void (*fn)(void *context, const char *name),
                 void *context);
    void (*close)(void *fs);
};

#define VOLUME_DEVICE_MAX    128u
#define VOLUME_SUBVOLUME_MAX 32u
#define VOLUME_PATH_MAX      1024u

struct volume {
    char device[VOLUME_DEVICE_MAX]; /* as the machine has it below /dev: "vda1", "mapper/a-b" */
    char uuid[37];                  /* as in root=UUID=, or "" */
    /* Of btrfs, a directory of the file system that is a root of its own: "/@rootfs". Paths are
     * below it. "": all of it. */
    char subvolume[VOLUME_SUBVOLUME_MAX];
    const struct volume_ops *ops;
    void *fs;
    bool lent; /* the file system is another volume's, which closes it */
};

bool volume_exists(const struct volume *v, const char *path);
int volume_read(const struct volume *v, const char *path, size_t limit, struct bytes *out);
void volume_list(const struct volume *v, const char *path,
                 void (*fn)(void *context, const char *name), void *context);
void volume_close(struct volume *v);

#endif
