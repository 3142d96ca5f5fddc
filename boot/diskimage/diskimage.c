#include "boot/diskimage/diskimage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/diskimage/diskimage_ext.h"
#include "boot/diskimage/diskimage_kind.h"
#include "boot/diskimage/diskimage_methods.h"
#include "boot/diskimage/diskimage_table.h"

static void find_root(struct disk_search *d)
{
    static const char *const signs[] = {"/etc/os-release", "/sbin/init", "/bin/sh"};

    for (size_t sign = 0; sign < 3; sign++)
        for (size_t i = 0; i < d->count; i++)
            if (ext_fs_exists(d->volumes[i].fs, signs[sign])) {
                memcpy(d->boot->root_device, d->volumes[i].part.device,
                       sizeof(d->boot->root_device));
                ext_fs_uuid(d->volumes[i].fs, d->boot->root_uuid);
                return;
            }
}

#define NAMED_MAX 8u /* partitions in a message */

/* None of the image's partitions can be read: say what they are. */
static int refuse_partitions(struct disk *disk, const struct disk_partition *parts, size_t count,
                             const char *path, struct err *e)
{
    char list[NAMED_MAX * 64] = "";
    size_t len = 0;

    for (size_t i = 0; i < count && i < NAMED_MAX; i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s %s", i ? ", " : "",
                                parts[i].device, disk_kind(disk, parts[i].offset));
    return err_set(
        e, STATUS_ERROR,
        "no Linux kernel found in %s: only ext2, ext3 and ext4 are looked into, and its "
        "partitions are others (%s%s); give --kernel, and --initrd and --append root=...",
        path, list, count > NAMED_MAX ? ", ..." : "");
}

static int open_volumes(struct disk_search *d, struct disk *disk, const char *path, struct err *e)
{
    struct disk_partition parts[PARTITIONS_MAX];
    struct ext_fs *whole = ext_fs_open(disk, 0, &d->reads_left);

    if (whole) {
        d->volumes[d->count++] = (struct volume){
            .part = {.device = "vda", .size = disk->size},
            .fs = whole,
        };
        return 0;
    }

    size_t count = disk_partitions(disk, parts, PARTITIONS_MAX);

    for (size_t i = 0; i < count; i++) {
        struct ext_fs *fs = ext_fs_open(disk, parts[i].offset, &d->reads_left);

        if (fs)
            d->volumes[d->count++] = (struct volume){.part = parts[i], .fs = fs};
    }
    if (d->count > 0)
        return 0;
    if (count > 0)
        return refuse_partitions(disk, parts, count, path, e);
    if (strcmp(disk_kind(disk, 0), "unknown") != 0)
        return err_set(
            e, STATUS_ERROR,
            "no Linux kernel found in %s: only ext2, ext3 and ext4 are looked into, and it "
            "is %s; give --kernel, and --initrd and --append root=...",
            path, disk_kind(disk, 0));
    return err_set(e, STATUS_ERROR,
                   "%s has neither a partition table nor an ext2, ext3 or ext4 file system: there "
                   "is no kernel in it; give --kernel",
                   path);
}

static int search(struct disk_search *d, const char *path, struct err *e)
{
    static bool (*const methods[])(struct disk_search *, const struct volume *) = {
        diskimage_try_grub, diskimage_try_extlinux, diskimage_try_entries, diskimage_try_newest};

    find_root(d);
    for (size_t m = 0; m < sizeof(methods) / sizeof(*methods); m++)
        for (size_t i = 0; i < d->count; i++)
            if (methods[m](d, &d->volumes[i]))
                return 0;
    return err_set(e, STATUS_ERROR,
                   "no Linux kernel found in %s: looked for grub.cfg, extlinux.conf, "
                   "loader/entries/*.conf and vmlinuz-* in /boot and / of %zu ext file system%s; "
                   "give --kernel",
                   path, d->count, d->count == 1 ? "" : "s");
}

int diskimage_find_boot(struct disk *disk, const char *path, struct disk_boot *out, struct err *e)
{
    struct disk_search *d = calloc(1, sizeof(*d));

    memset(out, 0, sizeof(*out));
    if (!d)
        return err_set(e, STATUS_ERROR, "out of memory for reading %s", path);
    d->boot = out;
    d->reads_left = EXT_READS_MAX;

    int rc = open_volumes(d, disk, path, e);

    if (rc == 0)
        rc = search(d, path, e);
    for (size_t i = 0; i < d->count; i++)
        ext_fs_close(d->volumes[i].fs);
    free(d);
    if (rc < 0)
        disk_boot_free(out);
    return rc;
}

void disk_boot_free(struct disk_boot *b)
{
    free(b->kernel);
    free(b->initrd);
    memset(b, 0, sizeof(*b));
}
